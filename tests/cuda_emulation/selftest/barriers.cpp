// Barriers and warp intrinsics that not all threads reach as they must.

#include "selftest.h"

namespace selftest {
namespace {

__global__ void barrier_in_branch_kernel(const float* x, float* y) {
  if (threadIdx.x < 48) __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
}
PLANTED(barrier_in_branch, "emulation") {
  const Array x(count_up(64)), y(64);
  run(barrier_in_branch_kernel, 1, 64, x.read(), y.get());
}

__global__ void two_barriers(const float* x, float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x];
  } else {
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x];
  }
}
PLANTED(barriers_at_two_places, "emulation") {
  const Array x(count_up(64)), y(64);
  run(two_barriers, 1, 64, x.read(), y.get());
}

__global__ void return_then_barrier(const float* x, float* y, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
}
PLANTED(return_before_barrier, "emulation") {
  const Array x(count_up(64)), y(64);
  run(return_then_barrier, 1, 64, x.read(), y.get(), 50);
}

__global__ void return_then_shuffle(const float* x, float* y, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  y[threadIdx.x] = lipgrad::cuda::warp_reduce(x[threadIdx.x], lipgrad::cuda::Sum{});
}
PLANTED(return_before_shuffle, "emulation") {
  const Array x(count_up(32)), y(32);
  run(return_then_shuffle, 1, 32, x.read(), y.get(), 20);
}

__global__ void shuffle_in_branch_kernel(const float* x, float* y) {
  float value = x[threadIdx.x];
  if (threadIdx.x % 2) value = __shfl_sync(kAllLanes, value, 1);
  __syncwarp();
  y[threadIdx.x] = value;
}
PLANTED(shuffle_in_branch, "emulation") {
  const Array x(count_up(32)), y(32);
  run(shuffle_in_branch_kernel, 1, 32, x.read(), y.get());
}

__global__ void shuffle_from_absent(const float* x, float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xffffu, x[threadIdx.x], 20);
}
PLANTED(shuffle_from_absent_lane, "emulation") {
  const Array x(count_up(32)), y(32);
  run(shuffle_from_absent, 1, 32, x.read(), y.get());
}

__global__ void shuffle_not_in_mask(const float* x, float* y) {
  y[threadIdx.x] = __shfl_sync(0xffffu, x[threadIdx.x], 0);
}
PLANTED(lane_not_in_its_mask, "emulation") {
  const Array x(count_up(32)), y(32);
  run(shuffle_not_in_mask, 1, 32, x.read(), y.get());
}

__global__ void different_intrinsics(const float* x, float* y) {
  y[threadIdx.x] = threadIdx.x < 16 ? __shfl_down_sync(kAllLanes, x[threadIdx.x], 1)
                                    : __shfl_up_sync(kAllLanes, x[threadIdx.x], 1);
}
PLANTED(different_intrinsics_meet, "emulation") {
  const Array x(count_up(32)), y(32);
  run(different_intrinsics, 1, 32, x.read(), y.get());
}

__global__ void odd_width(const float* x, float* y) {
  y[threadIdx.x] = __shfl_xor_sync(kAllLanes, x[threadIdx.x], 1, 24);
}
PLANTED(width_that_is_no_power_of_two, "emulation") {
  const Array x(count_up(32)), y(32);
  run(odd_width, 1, 32, x.read(), y.get());
}

// The block's last warp is not whole.
__global__ void shuffle_of_all(const float* x, float* y) {
  y[threadIdx.x] = __shfl_xor_sync(kAllLanes, x[threadIdx.x], 16);
}
PLANTED(warp_that_is_not_whole, "emulation") {
  const Array x(count_up(48)), y(48);
  run(shuffle_of_all, 1, 48, x.read(), y.get());
}

}  // namespace
}  // namespace selftest
