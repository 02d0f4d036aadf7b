#pragma once

// C++17. Softmax and its logarithm over the middle dimension of arrays (outer, n, inner).

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y = softmax(x). Entries whose mask (of the same layout; null: none) is 0 take no part and get
    // 0. A row that is all masked or all -inf becomes 0. y may be x.
    template <class T> void softmax(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                    const T* x, const std::uint8_t* mask, T* y);
    // gx = y (gy - <gy, y>): 0 in such rows and entries. gx may be gy.
    template <class T> void softmax_backward(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                             const T* y, const T* gy, T* gx);

    // y = x - log sum exp(x). Entries masked out get -inf; a row that is all masked or all -inf
    // becomes 0.
    template <class T> void log_softmax(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                        const T* x, const std::uint8_t* mask, T* y);
    // gx = gy - exp(y) sum(gy), the sum over entries with y > -inf; 0 in entries with y = -inf and
    // in rows that became 0. gx must be neither y nor gy.
    template <class T>
    void log_softmax_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* y,
                              const T* gy, T* gx);)
