#pragma once

// C++17. Reductions of the middle dimension of arrays (outer, n, inner) to (outer, inner). Sums are
// built from short chains that are added in double: a float sum of 10^7 terms of one sign is exact
// to about 10^-7 relative.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y = scale * sum(x). n may be 0.
    template <class T> void sum(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                double scale, const T* x, T* y);

    // mean = mean(x), y = sum((x - mean)^2) / (n - correction), in two passes.
    template <class T> void var(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                double correction, const T* x, T* mean, T* y);
    // gx = gy 2 (x - mean) / (n - correction)
    template <class T>
    void var_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, double correction,
                      const T* x, const T* mean, const T* gy, T* gx);

    // y = max(x) and the lowest index where it stands; a NaN counts as the largest. n >= 1.
    template <class T> void max(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
                                T* y, std::int64_t* index);
    // gx = gy at that index, 0 elsewhere.
    template <class T> void max_backward(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                         const std::int64_t* index, const T* gy, T* gx);

    // y = log sum exp(x); -inf for n = 0 and rows of -inf.
    template <class T>
    void logsumexp(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x, T* y);
    // gx = gy exp(x - y), 0 where y = -inf.
    template <class T>
    void logsumexp_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
                            const T* y, const T* gy, T* gx);)
