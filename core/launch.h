#pragma once

// Private: how ops call kernels. Apart from kernel.h, so that what is compiled for the CPU does not
// depend on whether there is CUDA.
#include <lipgrad/config.h>
#include <lipgrad/core/kernel.h>

// Calls the kernel of the device: LIPGRAD_LAUNCH(x.device(), softmax, rows, cols, x.data<T>(),
// ...).
#define LIPGRAD_LAUNCH(device, kernel, ...)          \
  do {                                               \
    if constexpr (::lipgrad::kWithCuda) {            \
      if ((device).is_cuda()) {                      \
        ::lipgrad::cuda::use_device((device).index); \
        ::lipgrad::cuda::kernel(__VA_ARGS__);        \
        break;                                       \
      }                                              \
    }                                                \
    ::lipgrad::cpu::kernel(__VA_ARGS__);             \
  } while (false)
