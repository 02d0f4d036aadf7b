#pragma once

// C++17. Rows divided by a power of their standard deviation.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y = x s for each row of x(rows, cols), s = (v + eps)^(-power / 2) with v the mean squared
    // deviation from the row's mean; mean(rows) and scale(rows) = s are left. cols > 0.
    template <class T> void node_norm(std::int64_t rows, std::int64_t cols, double eps,
                                      double power, const T* x, T* y, T* mean, T* scale);
    // gx = s gy - power s <gy, x> / (cols (v + eps)) (x - mean), v + eps = s^(-2 / power).
    template <class T>
    void node_norm_backward(std::int64_t rows, std::int64_t cols, double power, const T* x,
                            const T* mean, const T* scale, const T* gy, T* gx);)
