#pragma once

// The functions of one type and target that the residual kernels are made of, as a table: of rows,
// or of any stretch of elements with one alpha.

#include <cstdint>

namespace lipgrad::cpu {

template <class T>
struct ResidualRows {
  void (*forward)(std::int64_t n, const T* x, const T* f, const T* alpha, T* y);
  void (*forward_scalar)(std::int64_t n, const T* x, const T* f, const T* alpha, T* y);
  void (*backward)(std::int64_t n, const T* alpha, const T* gy, T* gx, T* gf);
  void (*backward_scalar)(std::int64_t n, const T* alpha, const T* gy, T* gx, T* gf);
  void (*add)(std::int64_t n, const T* x, const T* f, const T* gy, T* galpha);
  double (*dot)(std::int64_t n, const T* x, const T* f, const T* gy);
};

}  // namespace lipgrad::cpu
