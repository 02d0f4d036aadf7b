#pragma once

// The functions of one type and target that the norm kernels are made of, as tables.

#include <lipgrad/ops/kernels/softmax_rows_cpu.h>

namespace lipgrad::cpu {

template <class T>
struct NormRows {
  void (*forward)(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight,
                  const T* bias, T* y, T* mean, T* rstd);
  // Adds to gweight and gbias.
  void (*backward)(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* mean,
                   const T* rstd, const T* gy, T* gx, T* gweight, T* gbias);
};

template <class T>
struct CenterNormRows {
  void (*forward)(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* bias,
                  T* y, T* mean);
  // Adds to gweight and gbias.
  void (*backward)(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* mean,
                   const T* gy, T* gx, T* gweight, T* gbias);
};

// Rows, and groups of columns with leading dimension ld.
template <class T>
struct L2Rows {
  void (*rows)(std::int64_t rows, std::int64_t n, double eps, const T* x, T* y, T* norm);
  void (*columns)(std::int64_t n, std::int64_t ld, std::int64_t width, double eps, const T* x, T* y,
                  T* norm);
  void (*backward_rows)(std::int64_t rows, std::int64_t n, double eps, const T* y, const T* norm,
                        const T* gy, T* gx);
  void (*backward_columns)(std::int64_t n, std::int64_t ld, std::int64_t width, double eps,
                           const T* y, const T* norm, const T* gy, T* gx);
};

}  // namespace lipgrad::cpu
