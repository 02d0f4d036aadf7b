#pragma once

// C++17. Losses: each writes one number. gy, the gradient of that number, is read from memory too.
// On the CPU rows and labels must lie in range: the op checks them. On CUDA devices the kernels do:
// a row at fault, or one whose label is, is reported and adds nothing; it still counts in means.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // The mean over i < count of (1 - smoothing) (lse_r - x[r][label_r]) + smoothing (lse_r -
    // mean(x[r])), r = rows[i] (rows null: r = i), lse_r = log sum exp(x[r]); x is (total, cols).
    // lse gets count values. Labels are indexed by r and lie in [0, cols).
    template <class T, class Label>
    void cross_entropy(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                       const std::int64_t* rows, const Label* labels, double smoothing, T* lse,
                       T* loss);
    // gx(total, cols): the gradient in full, 0 in rows not chosen. A row chosen k times counts k
    // times.
    template <class T, class Label>
    void cross_entropy_backward(std::int64_t total, std::int64_t count, std::int64_t cols,
                                const T* x, const std::int64_t* rows, const Label* labels,
                                double smoothing, const T* lse, const T* gy, T* gx);

    // The mean over rows r of sum_c t[r][c] (lse_r - x[r][c]); x, t: (total, cols), lse: (total).
    template <class T> void soft_cross_entropy(std::int64_t total, std::int64_t cols, const T* x,
                                               const T* t, T* lse, T* loss);
    // gx and gt (total, cols), either may be null.
    template <class T>
    void soft_cross_entropy_backward(std::int64_t total, std::int64_t cols, const T* x, const T* t,
                                     const T* lse, const T* gy, T* gx, T* gt);

    // How many of the rows have their largest element (the first of equal ones; a NaN counts as the
    // largest) at their label; everything else as above.
    template <class T, class Label>
    void count_correct(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                       const std::int64_t* rows, const Label* labels, std::int64_t* correct);

    // The mean of max(x, 0) - x t + log(1 + e^-|x|): binary cross-entropy of sigmoid(x) and target
    // t.
    template <class T> void bce_with_logits(std::int64_t n, const T* x, const T* t, T* loss);
    // gx and gt may each be null: not wanted.
    template <class T> void bce_with_logits_backward(std::int64_t n, const T* x, const T* t,
                                                     const T* gy, T* gx, T* gt);

    // The same, x and t being (total, cols), over the rows r = rows[i], i < count (rows null: r =
    // i, count = total); with skip_missing over those of their terms whose t is no NaN. known gets
    // the number of terms; with none the loss is 0.
    template <class T>
    void bce_rows(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                  const std::int64_t* rows, const T* t, bool skip_missing, double* known, T* loss);
    // gx and gt (total, cols), either may be null: in full, 0 where nothing counts. A row chosen k
    // times counts k times.
    template <class T>
    void bce_rows_backward(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                           const std::int64_t* rows, const T* t, bool skip_missing,
                           const double* known, const T* gy, T* gx, T* gt);

    // The mean of (x - t)^2.
    template <class T> void mse(std::int64_t n, const T* x, const T* t, T* loss); template <class T>
    void mse_backward(std::int64_t n, const T* x, const T* t, const T* gy, T* gx, T* gt);)
