#pragma once

// C++17. Normalisation of columns by statistics over the rows.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

// Columns (cols) that norms take, each null where it is not there: the scale a of the mean (1),
// weight (1), bias (0).
template <class T>
struct ColumnNorm {
  const T *mean_scale, *weight, *bias;
};

// Gradients (cols), null where not wanted.
template <class T>
struct ColumnNormGradients {
  T *mean_scale, *weight, *bias;
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // moments(2, cols): the mean m of each column of x(rows, cols), and v, the mean of the squares
    // (x - m)^2. rows > 0.
    template <class T>
    void column_moments(std::int64_t rows, std::int64_t cols, const T* x, T* moments);
    // y = (x - a m) r weight + bias with r = 1 / sqrt(v + (1 - a)^2 m^2 + eps): the squares are
    // those of x - a m.
    template <class T>
    void column_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* moments,
                     const ColumnNorm<T>& by, T* y);
    // The gradients of x and of what `by` holds, gx null where it is not wanted. constant: the
    // moments do not depend on x (then mean_scale and its gradient are null).
    template <class T>
    void column_norm_backward(std::int64_t rows, std::int64_t cols, double eps, bool constant,
                              const T* x, const T* moments, const ColumnNorm<T>& by, const T* gy,
                              T* gx, const ColumnNormGradients<T>& to);
    // mean(cols) <- (1 - momentum) mean + momentum m, and variance(cols) likewise with n / (n - 1)
    // v.
    template <class T> void update_moments(std::int64_t cols, std::int64_t n, double momentum,
                                           const T* moments, T* mean, T* variance);)
