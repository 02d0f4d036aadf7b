#pragma once

// C++17, for host and device compilers alike. The bias of attention scores by the relative position
// of two tokens of a window of (height, width): row (ya - yb + height - 1) (2 width - 1) + xa - xb
// + width - 1 of a table.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // bias (H, T, T), T = height width, from table ((2 height - 1) (2 width - 1), H).
    template <class T> void relative_position_bias(std::int64_t heads, std::int64_t height,
                                                   std::int64_t width, const T* table, T* bias);
    // grad_table: of all pairs of tokens at an offset the sum of grad_bias.
    template <class T>
    void relative_position_bias_backward(std::int64_t heads, std::int64_t height,
                                         std::int64_t width, const T* grad_bias, T* grad_table);)
