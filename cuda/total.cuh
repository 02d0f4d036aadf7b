#pragma once

// C++17, private to cuda/. The sum of what blocks left, in an order that depends on their number
// alone.

#include "reduce.cuh"

namespace lipgrad::cuda {

inline constexpr int kTotalThreads = 256;
inline constexpr int kTotalled = kTotalThreads * 8;  // numbers of a block

// sums(blocks): of each kTotalled of partial(n).
__global__ static void total_kernel(std::int64_t n, const double* partial, double* sums) {
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kTotalled / kTotalThreads; ++k) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTotalled + k * kTotalThreads +
                           static_cast<int>(threadIdx.x);
    if (i < n) sum += partial[i];
  }
  sum = block_reduce<kTotalThreads>(sum, Sum(), 0.0);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class T>
__global__ void divide_kernel(const double* sum, double divisor, T* y) {
  *y = static_cast<T>(*sum / divisor);
}

// *y = the sum of partial(n) / divisor; n >= 1.
template <class T>
void mean_of(std::int64_t n, double* partial, double divisor, T* y) {
  const std::int64_t blocks = (n + kTotalled - 1) / kTotalled;
  const Scratch<double> sums(blocks);
  launch(total_kernel, blocks_for(n, kTotalled), kTotalThreads, 0, n,
         static_cast<const double*>(partial), sums.get());
  if (blocks > 1) return mean_of(blocks, sums.get(), divisor, y);
  launch(divide_kernel<T>, 1, 1, 0, static_cast<const double*>(sums.get()), divisor, y);
}

}  // namespace lipgrad::cuda
