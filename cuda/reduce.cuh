#pragma once

// C++17. Reductions of a warp and of a block, in an order that is always the same.

#include "launch.h"

namespace lipgrad::cuda {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// A NaN in either argument is the result.
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};

// The result in every lane of each group of `width` lanes (a power of two); all 32 lanes call it.
template <int width = kWarp, class T, class Op>
__device__ __forceinline__ T warp_reduce(T value, Op op) {
#pragma unroll
  for (int step = width / 2; step > 0; step /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// The result in every thread of a block of `threads` threads, which all call it.
template <int threads, class T, class Op>
__device__ T block_reduce(T value, Op op, T identity) {
  static_assert(threads % kWarp == 0 && threads <= 1024, "whole warps");
  LIPGRAD_SHARED(T, part, [threads / kWarp]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_reduce(value, op);
  if (threads == kWarp) return value;
  __syncthreads();  // an earlier call may still read `part`
  if (lane == 0) part[warp] = value;
  __syncthreads();
  value = lane < threads / kWarp ? part[lane] : identity;
  return warp_reduce(value, op);
}

// Tells of an element that is not below `limit`; see Fault. The lowest position stays.
__device__ inline void report(Faults* faults, Fault fault, std::int64_t position,
                              std::int64_t limit) {
  const int kind = static_cast<int>(fault);
  atomicMin(&faults->position[kind], static_cast<unsigned long long>(position));
  atomicExch(&faults->limit[kind], static_cast<unsigned long long>(limit));
}

}  // namespace lipgrad::cuda
