#pragma once

// C++17. PairNorm (Zhao, Akoglu, arXiv:1909.12223) of arrays x(rows, cols) and its gradients. mean
// is the mean of the rows, |.| the l2 norm of a row. Sums over rows are of fixed blocks, in order.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // PN: y = scale (x - mean) / root, root = sqrt(eps + the mean of |x - mean|^2): one value.
    template <class T> void pair_norm(std::int64_t rows, std::int64_t cols, double scale,
                                      double eps, const T* x, T* y, T* root);
    // gx = v - mean(v), v = scale gy / root - y <gy, y> / (scale rows root).
    template <class T> void pair_norm_backward(std::int64_t rows, std::int64_t cols, double scale,
                                               const T* y, const T* root, const T* gy, T* gx);

    // PN-SI: y = scale (x - mean) / root, root = sqrt(eps + |x - mean|^2) of each row.
    template <class T> void pair_norm_si(std::int64_t rows, std::int64_t cols, double scale,
                                         double eps, const T* x, T* y, T* root);
    // gx = v - mean(v), v = scale gy / root - y <gy, y> / (scale root) with products of rows.
    template <class T>
    void pair_norm_si_backward(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                               const T* root, const T* gy, T* gx);

    // PN-SCS: y = scale x / root - mean, root = sqrt(eps + |x|^2) of each row.
    template <class T> void pair_norm_scs(std::int64_t rows, std::int64_t cols, double scale,
                                          double eps, const T* x, T* y, T* root);
    // gx = scale (gy / root - x <gy, x> / root^3) - mean(gy).
    template <class T>
    void pair_norm_scs_backward(std::int64_t rows, std::int64_t cols, double scale, const T* x,
                                const T* root, const T* gy, T* gx);)
