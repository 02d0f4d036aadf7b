#include <lipgrad/core/kernels/convert.h>

#include "launch.h"

namespace lipgrad::cuda {
namespace {

// to(n) = from(n) converted.
template <class From, class To>
__global__ void convert_kernel(std::int64_t n, const From* from, To* to) {
  const std::int64_t i = thread_index();
  if (i < n) to[i] = static_cast<To>(from[i]);
}

}  // namespace

template <class From, class To>
void convert(std::int64_t n, const From* from, To* to) {
  launch(convert_kernel<From, To>, blocks_for(n, 256), 256, 0, n, from, to);
}

#define LIPGRAD_INSTANTIATE(From, To) \
  template void convert<From, To>(std::int64_t, const From*, To*);
LIPGRAD_CONVERSIONS(LIPGRAD_INSTANTIATE)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cuda
