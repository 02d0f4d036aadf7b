#pragma once

// C++17. Reductions of segments: segment s is the entries e from offsets[s] to before offsets[s +
// 1], all `entries` = offsets[segments] of them belong to one. x is (entries, features), y
// (segments, features). Segments without entries come to 0.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y[s] = the sum, or with `mean` the mean, of x[order[e]] over the segment's entries; a null
    // order stands for the identity.
    template <class T> void segment_sum(std::int64_t segments, std::int64_t entries,
                                        std::int64_t features, const std::int64_t* offsets,
                                        const std::int64_t* order, bool mean, const T* x, T* y);

    // y[s]: the largest x[e], and argmax(segments, features) (may be null) its e: the first of
    // equal ones, -1 where there is none. A NaN is the largest.
    template <class T>
    void segment_max(std::int64_t segments, std::int64_t entries, std::int64_t features,
                     const std::int64_t* offsets, const T* x, T* y, std::int64_t* argmax);

    // y[s] = log of the sum of exp(x[e]).
    template <class T>
    void segment_logsumexp(std::int64_t segments, std::int64_t entries, std::int64_t features,
                           const std::int64_t* offsets, const T* x, T* y);

    // y(entries, features): each entry gets x(segments, features) of its segment, with `mean`
    // divided by the number of the segment's entries.
    template <class T>
    void segment_spread(std::int64_t segments, std::int64_t entries, std::int64_t features,
                        const std::int64_t* offsets, bool mean, const T* x, T* y);

    // gx[e] = gy[s] where argmax[s] = e, else 0.
    template <class T> void segment_max_backward(std::int64_t segments, std::int64_t entries,
                                                 std::int64_t features, const std::int64_t* offsets,
                                                 const std::int64_t* argmax, const T* gy, T* gx);

    // gx[e] = gy[s] exp(x[e] - y[s]), 0 where y[s] is -inf.
    template <class T>
    void segment_logsumexp_backward(std::int64_t segments, std::int64_t entries,
                                    std::int64_t features, const std::int64_t* offsets, const T* x,
                                    const T* y, const T* gy, T* gx);)
