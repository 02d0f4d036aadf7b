#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/group_sort.h>

namespace lipgrad::cpu {
namespace {

constexpr std::int64_t grain = 1 << 14;

}  // namespace

template <class T>
void group_sort(std::int64_t pairs, const T* x, T* y) {
  parallel_for(pairs, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T a = x[2 * i], b = x[2 * i + 1];
      const bool swap = b > a;
      y[2 * i] = swap ? b : a;
      y[2 * i + 1] = swap ? a : b;
    }
  });
}

template <class T>
void group_sort_backward(std::int64_t pairs, const T* x, const T* gy, T* gx) {
  parallel_for(pairs, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const bool swap = x[2 * i + 1] > x[2 * i];
      const T a = gy[2 * i], b = gy[2 * i + 1];
      gx[2 * i] = swap ? b : a;
      gx[2 * i + 1] = swap ? a : b;
    }
  });
}

#define LIPGRAD_INSTANTIATE(T)                             \
  template void group_sort<T>(std::int64_t, const T*, T*); \
  template void group_sort_backward<T>(std::int64_t, const T*, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cpu
