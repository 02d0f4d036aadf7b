#pragma once

// C++17, for host and device compilers alike. How kernels are declared; how ops call them is in
// core/launch.h.
//
// A kernel is a free function over raw pointers, int64 sizes and leading dimensions that knows no
// Tensor. <folder>/kernels/<family>.h declares it once for both devices,
//
//   LIPGRAD_KERNELS(
//       // y(rows, cols) = softmax of each row of x.
//       template <class T> void softmax(std::int64_t rows, std::int64_t cols, const T* x, T* y);)
//
// <family>_cpu.cpp defines lipgrad::cpu::softmax, cuda/<family>.cu lipgrad::cuda::softmax, both
// with explicit instantiations for float and double. Kernels of CUDA devices return before they
// have run: they run in the device's one stream, in the order of the calls.

#include <cstdint>

#define LIPGRAD_KERNELS(...) \
  namespace lipgrad::cpu {   \
  __VA_ARGS__                \
  }                          \
  namespace lipgrad::cuda {  \
  __VA_ARGS__                \
  }

namespace lipgrad::cuda {
// Makes a device the calling thread's current one: kernels run there. Error when there is none.
void use_device(int index);
}  // namespace lipgrad::cuda
