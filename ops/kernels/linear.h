#pragma once

// C++17. The linear layer with bias and activation in one pass over its result.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/ops/kernels/activation.h>

LIPGRAD_KERNELS(
    // y(rows, out) = f(z) with z = x(rows, in) weight(out, in)^T + bias(out). bias may be null.
    // Where `pre` is not null it receives z (for activations whose gradient needs it).
    template <class T>
    void linear(Activation f, double a, std::int64_t rows, std::int64_t in, std::int64_t out,
                const T* x, const T* weight, const T* bias, T* pre, T* y);

    // gz(rows, cols) = gy f', `saved` as for activation_backward, and gbias(cols) = its sums over
    // the rows. For the identity gz is not written (gy is the same) and may be null; gbias may be
    // null too.
    template <class T>
    void linear_backward_bias(Activation f, double a, std::int64_t rows, std::int64_t cols,
                              const T* saved, const T* gy, T* gz, T* gbias);

    // y(cols, rows) = x(rows, cols) transposed.
    template <class T> void transpose(std::int64_t rows, std::int64_t cols, const T* x, T* y);)
