#pragma once

// C++17. Normalisation of the rows of (rows, cols) arrays, and l2 normalisation along any
// dimension.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y = (x - mean) rstd weight + bias with mean and rstd = 1 / sqrt(mean((x - mean)^2) + eps) of
    // each row (Ba, Kiros, Hinton, arXiv:1607.06450). weight(cols) and bias(cols) may be null; mean
    // and rstd get one value a row.
    template <class T> void layer_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x,
                                       const T* weight, const T* bias, T* y, T* mean, T* rstd);
    // y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + eps) (Zhang, Sennrich, arXiv:1910.07467).
    template <class T> void rms_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x,
                                     const T* weight, T* y, T* rstd);

    // The gradients of both: mean null for rms_norm. gx, gweight, gbias may each be null (not
    // wanted); gweight and gbias are sums over rows, of fixed blocks in order. gx may be gy.
    template <class T>
    void norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight,
                       const T* mean, const T* rstd, const T* gy, T* gx, T* gweight, T* gbias);

    // y = cols / (cols - 1) (x - mean) weight + bias with the mean of each row (Qi et al.,
    // arXiv:2304.09856, CenterNorm). weight(cols) and bias(cols) may be null; cols > 1; mean gets
    // one value a row.
    template <class T> void center_norm(std::int64_t rows, std::int64_t cols, const T* x,
                                        const T* weight, const T* bias, T* y, T* mean);
    // gx = cols / (cols - 1) (h - mean(h)) with h = gy weight; gweight and gbias are sums over
    // rows. Each may be null (not wanted); x and mean are read for gweight only. gx may be gy.
    template <class T>
    void center_norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight,
                              const T* mean, const T* gy, T* gx, T* gweight, T* gbias);

    // y = x / max(|x|, eps) with the l2 norms |x| over the middle dimension of (outer, n, inner);
    // norm gets outer * inner values.
    template <class T> void l2_normalize(std::int64_t outer, std::int64_t n, std::int64_t inner,
                                         double eps, const T* x, T* y, T* norm);
    // gx = (gy - y <y, gy>) / norm where norm >= eps, else gy / eps. gx may be gy.
    template <class T>
    void l2_normalize_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, double eps,
                               const T* y, const T* norm, const T* gy, T* gx);)
