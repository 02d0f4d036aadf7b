#pragma once

// C++17. Neighbours sorted in pairs.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y[2i] = max(x[2i], x[2i + 1]) and y[2i + 1] = min of them, i < pairs. A pair that is equal or
    // holds a NaN stays as it is. y may be x.
    template <class T> void group_sort(std::int64_t pairs, const T* x, T* y);
    // gx is gy with the pairs swapped that x had in the other order. gx may be gy.
    template <class T>
    void group_sort_backward(std::int64_t pairs, const T* x, const T* gy, T* gx);)
