#pragma once

// Stands in for the toolkit's <cuda_runtime.h> in builds with LIPGRAD_CUDA=EMULATED, so that
// kernels and the host code around them compile unchanged with g++ and clang. What lipgrad uses is
// here, with the real signatures; tests/cuda_emulation/README.md says how to add more.

#define LIPGRAD_CUDA_EMULATED 1
#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

#include <lipgrad_emulation/atomics.h>
#include <lipgrad_emulation/executor.h>
#include <lipgrad_emulation/intrinsics.h>
#include <lipgrad_emulation/launch.h>
#include <lipgrad_emulation/math.h>
#include <lipgrad_emulation/runtime_api.h>
#include <lipgrad_emulation/vector_types.h>
