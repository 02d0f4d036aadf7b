#pragma once

// Private to batch_norm_cpu.cpp: the functions of one type and vector width.

#include <cstdint>

namespace lipgrad::cpu {

template <class T>
struct BatchNormRows {
  // sums(cols) += the sums of x, and of (x - mean)^2.
  void (*add)(std::int64_t rows, std::int64_t cols, const T* x, T* sums);
  void (*add_squares)(std::int64_t rows, std::int64_t cols, const T* x, const T* mean, T* sums);
  // plain(cols) += the sums of gy, with_x(cols) those of gy (x - shift).
  void (*add_products)(std::int64_t rows, std::int64_t cols, const T* x, const T* shift,
                       const T* gy, T* plain, T* with_x);
  // y = (x - shift) scale + bias.
  void (*forward)(std::int64_t rows, std::int64_t cols, const T* x, const T* shift, const T* scale,
                  const T* bias, T* y);
  // gx = scale (gy - (x - shift) along - down).
  void (*backward)(std::int64_t rows, std::int64_t cols, const T* x, const T* shift, const T* gy,
                   const T* scale, const T* along, const T* down, T* gx);
};

}  // namespace lipgrad::cpu
