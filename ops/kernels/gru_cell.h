#pragma once

// C++17. The gates of a recurrent unit.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y(rows, cols) = (1 - z) n + z h with r = sigmoid(x_r + hidden_r), z = sigmoid(x_z +
    // hidden_z), n = tanh(x_n + r hidden_n); x(rows, 3 cols) and hidden(rows, 3 cols) hold the
    // parts r, z, n.
    template <class T> void gru_gates(std::int64_t rows, std::int64_t cols, const T* x,
                                      const T* hidden, const T* h, T* y);
    // The gradients of x, hidden and h, each null where it is not wanted.
    template <class T>
    void gru_gates_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden,
                            const T* h, const T* gy, T* gx, T* ghidden, T* gh);)
