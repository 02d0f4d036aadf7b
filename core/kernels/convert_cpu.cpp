#include <lipgrad/core/kernels/convert.h>
#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {

template <class From, class To>
void convert(std::int64_t n, const From* from, To* to) {
  parallel_for(n, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<To>(from[i]);
  });
}

#define LIPGRAD_INSTANTIATE(From, To) \
  template void convert<From, To>(std::int64_t, const From*, To*);
LIPGRAD_CONVERSIONS(LIPGRAD_INSTANTIATE)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cpu
