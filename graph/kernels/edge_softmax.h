#pragma once

// C++17. The softmax over the edges of a node. Row i has the entries e from offsets[i] to before
// offsets[i + 1]; `edges` is offsets[rows]. x, y, gy and gx are (edges, heads).

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y[e] = exp(x[e]) over the sum of exp(x[k]) of its row's entries k, head by head; 0 where all
    // of them are -inf.
    template <class T> void edge_softmax(std::int64_t rows, std::int64_t edges, std::int64_t heads,
                                         const std::int64_t* offsets, const T* x, T* y);

    // gx[e] = y[e] (gy[e] - sum of y[k] gy[k] of its row's entries k).
    template <class T>
    void edge_softmax_backward(std::int64_t rows, std::int64_t edges, std::int64_t heads,
                               const std::int64_t* offsets, const T* y, const T* gy, T* gx);)
