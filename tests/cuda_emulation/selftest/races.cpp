// Two threads touch the same element with nothing between them that orders the accesses.

#include "selftest.h"

namespace selftest {
namespace {

__global__ void reverse_unsynchronised(const float* x, float* y) {
  LIPGRAD_SHARED(float, s, [64]);
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[63 - threadIdx.x];
}
PLANTED(missing_syncthreads, "thread value") {
  const Array x(count_up(64)), y(64);
  run(reverse_unsynchronised, 1, 64, x.read(), y.get());
  std::vector<float> expected = count_up(64);
  for (int i = 0; i < 64; ++i) expected[i] = static_cast<float>(64 - i);
  check_values(y, expected);
}

// Each thread reads what its predecessor wrote, which has run already when threads run in order.
__global__ void neighbour_unsynchronised(const float* x, float* y) {
  LIPGRAD_SHARED(float, s, [64]);
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[threadIdx.x ? threadIdx.x - 1 : 0];
}
PLANTED(missing_syncthreads_neighbour, "thread value") {
  const Array x(count_up(64)), y(64);
  run(neighbour_unsynchronised, 1, 64, x.read(), y.get());
  std::vector<float> expected = count_up(64);
  for (int i = 0; i < 64; ++i) expected[i] = static_cast<float>(i ? i : 1);
  check_values(y, expected);
}

// The buffer is written again before everyone has read it.
__global__ void reuse_unsynchronised(const float* x, float* y) {
  LIPGRAD_SHARED(float, s, [2]);
  float sum = 0;
  for (int i = 0; i < 3; ++i) {
    const float value = lipgrad::cuda::warp_reduce(x[threadIdx.x], lipgrad::cuda::Sum{});
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = value;
    __syncthreads();
    sum += s[0] + s[1];
  }
  y[threadIdx.x] = sum;
}
PLANTED(missing_syncthreads_before_reuse, "thread") {
  const Array x(count_up(64)), y(64);
  run(reuse_unsynchronised, 1, 64, x.read(), y.get());
}

__global__ void warp_unsynchronised(const float* x, float* y) {
  LIPGRAD_SHARED(float, s, [32]);
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[31 - threadIdx.x];
}
PLANTED(missing_syncwarp, "thread value") {
  const Array x(count_up(32)), y(32);
  run(warp_unsynchronised, 1, 32, x.read(), y.get());
  std::vector<float> expected = count_up(32);
  for (int i = 0; i < 32; ++i) expected[i] = static_cast<float>(32 - i);
  check_values(y, expected);
}

// A shuffle exchanges values; it orders no memory accesses.
__global__ void shuffle_as_barrier(const float* x, float* y) {
  LIPGRAD_SHARED(float, s, [32]);
  s[threadIdx.x] = x[threadIdx.x];
  const float all = lipgrad::cuda::warp_reduce(0.0f, lipgrad::cuda::Sum{});
  y[threadIdx.x] = s[31 - threadIdx.x] + all;
}
PLANTED(shuffle_instead_of_syncwarp, "thread") {
  const Array x(count_up(32)), y(32);
  run(shuffle_as_barrier, 1, 32, x.read(), y.get());
}

__global__ void sum_in_one_element(const float* x, float* y) { y[0] = y[0] + x[threadIdx.x]; }
PLANTED(race_in_block, "thread") {
  const Array x(count_up(64)), y(std::vector<float>(1, 0.0f));
  run(sum_in_one_element, 1, 64, x.read(), y.get());
}

__global__ void sum_of_blocks(const float* x, float* y) {
  const float sum = lipgrad::cuda::block_reduce<64>(x[threadIdx.x], lipgrad::cuda::Sum{}, 0.0f);
  if (threadIdx.x == 0) y[0] += sum;
}
PLANTED(race_across_blocks, "thread") {
  const Array x(count_up(64)), y(std::vector<float>(1, 0.0f));
  run(sum_of_blocks, 4, 64, x.read(), y.get());
}

__global__ void two_blocks_write(float* y) {
  if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 1;
  __syncthreads();
  if (blockIdx.x == 2 && threadIdx.x == 1) y[0] = 2;
}
PLANTED(race_across_blocks_behind_a_barrier, "thread") {
  const Array y(std::vector<float>(1, 0.0f));
  run(two_blocks_write, 3, 64, y.get());
}

// The last block to come adds up what the others wrote, without a fence of its own.
__global__ void last_block_adds(const float* x, float* part, unsigned* count, float* y) {
  part[blockIdx.x] = x[blockIdx.x];
  if (atomicAdd(count, 1u) != gridDim.x - 1) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += part[i];
  y[0] = sum;
}
PLANTED(missing_threadfence, "thread") {
  const Array x(count_up(4)), part(4), y(1);
  unsigned* count = nullptr;
  must(cudaMalloc(&count, sizeof(unsigned)), "cudaMalloc");
  must(cudaMemset(count, 0, sizeof(unsigned)), "cudaMemset");
  run(last_block_adds, 4, 1, x.read(), part.get(), count, y.get());
  cudaFree(count);
}

}  // namespace
}  // namespace selftest
