#include <lipgrad/ops/kernels/group_sort.h>

#include "launch.h"

namespace lipgrad::cuda {
namespace {

// y(pairs, 2), gy likewise (x itself in the forward pass): a thread a pair.
template <class T>
__global__ void group_sort_kernel(std::int64_t pairs, const T* x, const T* from, T* to) {
  const std::int64_t i = thread_index();
  if (i >= pairs) return;
  const bool swap = x[2 * i + 1] > x[2 * i];
  const T a = from[2 * i], b = from[2 * i + 1];
  to[2 * i] = swap ? b : a;
  to[2 * i + 1] = swap ? a : b;
}

}  // namespace

template <class T>
void group_sort(std::int64_t pairs, const T* x, T* y) {
  launch(group_sort_kernel<T>, blocks_for(pairs, 256), 256, 0, pairs, x, x, y);
}

template <class T>
void group_sort_backward(std::int64_t pairs, const T* x, const T* gy, T* gx) {
  launch(group_sort_kernel<T>, blocks_for(pairs, 256), 256, 0, pairs, x, gy, gx);
}

#define LIPGRAD_INSTANTIATE(T)                             \
  template void group_sort<T>(std::int64_t, const T*, T*); \
  template void group_sort_backward<T>(std::int64_t, const T*, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cuda
