#pragma once

// C++17. Layer normalisation over all elements of an array.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y(rows, cols) = (x - mean) rstd weight + bias with the mean of all elements and rstd = 1 /
    // sqrt(mean((x - mean)^2) + eps). weight(cols) and bias(cols) may be null; stats = {mean,
    // rstd}. rows * cols > 0.
    template <class T>
    void graph_layer_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x,
                          const T* weight, const T* bias, T* y, T* stats);
    // gx = rstd (h - mean(h) - xhat mean(h xhat)) with h = gy weight, xhat = (x - mean) rstd and
    // means over all elements; gweight and gbias are the sums of gy xhat and gy over rows. gx,
    // gweight, gbias may each be null (not wanted). Sums are of fixed blocks, in order.
    template <class T> void graph_layer_norm_backward(std::int64_t rows, std::int64_t cols,
                                                      const T* x, const T* weight, const T* stats,
                                                      const T* gy, T* gx, T* gweight, T* gbias);)
