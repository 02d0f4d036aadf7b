#include <lipgrad/core/kernels/accumulate.h>

#include "reduce.cuh"

namespace lipgrad::cuda {
namespace {

template <class T>
__global__ void fill_kernel(T* x, std::int64_t n, T value) {
  for (std::int64_t i = thread_index(); i < n; i += grid_threads()) x[i] = value;
}

}  // namespace

template <class T>
void fill(T* x, std::int64_t n, T value) {
  launch(fill_kernel<T>, blocks_for(n, 256), 256, 0, x, n, value);
}

template void fill<float>(float*, std::int64_t, float);
template void fill<double>(double*, std::int64_t, double);
template void fill<std::int32_t>(std::int32_t*, std::int64_t, std::int32_t);
template void fill<std::int64_t>(std::int64_t*, std::int64_t, std::int64_t);
template void fill<std::uint8_t>(std::uint8_t*, std::int64_t, std::uint8_t);

}  // namespace lipgrad::cuda
