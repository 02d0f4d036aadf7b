#pragma once

// Private to the CPU kernels: the functions of one type and target that graph_layer_norm is made
// of, as a table.

#include <cstdint>

namespace lipgrad::cpu {

template <class T>
struct GraphLayerNormRows {
  // The sums of x, and of (x - mean)^2.
  double (*sum)(std::int64_t n, const T* x);
  double (*squares)(std::int64_t n, const T* x, T mean);
  // y = (x - mean) rstd weight + bias.
  void (*forward)(std::int64_t rows, std::int64_t cols, T mean, T rstd, const T* x, const T* weight,
                  const T* bias, T* y);
  // Adds the column sums of gy xhat and of gy.
  void (*add)(std::int64_t rows, std::int64_t cols, T mean, T rstd, const T* x, const T* gy,
              T* with_xhat, T* plain);
  // gx = rstd (gy weight - shift - along xhat).
  void (*backward)(std::int64_t rows, std::int64_t cols, T mean, T rstd, T shift, T along,
                   const T* x, const T* weight, const T* gy, T* gx);
};

}  // namespace lipgrad::cpu
