#pragma once

// C++17. How kernels are written and launched so that one source serves nvcc and the emulation
// (tests/cuda_emulation): shared memory by the two macros, launches by launch(). This is the only
// file that knows of both. tests/checks/cuda_rules.sh enforces the rules.

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cuda_runtime.h>

#include <lipgrad/core/philox.h>  // LIPGRAD_HD

#include "runtime.h"

#ifdef LIPGRAD_CUDA_EMULATED
// LIPGRAD_SHARED(float, tile, [32][33]): an array that the threads of a block share.
#define LIPGRAD_SHARED(T, name, ...)                                   \
  T(&name)                                                             \
  __VA_ARGS__ = lipgrad_emulation::shared_variable<T __VA_ARGS__>([] { \
    static char site;                                                  \
    return static_cast<const void*>(&site);                            \
  }())
// LIPGRAD_DYNAMIC_SHARED(float, buffer): a pointer to the bytes that launch() was asked for.
#define LIPGRAD_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(lipgrad_emulation::dynamic_shared(alignof(T)))
#else
#define LIPGRAD_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define LIPGRAD_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char lipgrad_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(lipgrad_dynamic_shared)
#endif

namespace lipgrad::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// kernel<<<grid, block, shared, stream()>>>(args...) on the current device's stream, as an ordinary
// function. An empty grid does nothing. Error when the launch fails.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared, A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream();
  check(cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...), "launch");
}

// Blocks of `per_block` items for n items. Error above 2^31 - 1, the largest grid.
unsigned blocks_for(std::int64_t n, std::int64_t per_block);

// The number of this thread in the grid, and of all threads, for loops with a stride of the grid:
// 64 bits, since products of 32-bit built-ins overflow.
__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace lipgrad::cuda
