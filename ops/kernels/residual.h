#pragma once

// C++17. Residual connections with a factor of each column.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y(rows, cols) = x + alpha f, damped: x + alpha (f - x). alpha(cols), or one value where
    // `scalar`.
    template <class T> void residual(bool damped, std::int64_t rows, std::int64_t cols, bool scalar,
                                     const T* x, const T* f, const T* alpha, T* y);
    // gx = gy, damped: (1 - alpha) gy; gf = alpha gy; galpha = the sum over rows (where `scalar`,
    // over everything) of gy f, damped: gy (f - x). gx, gf, galpha may each be null (not wanted);
    // f and, damped, x are read for galpha only.
    template <class T> void residual_backward(bool damped, std::int64_t rows, std::int64_t cols,
                                              bool scalar, const T* x, const T* f, const T* alpha,
                                              const T* gy, T* gx, T* gf, T* galpha);)
