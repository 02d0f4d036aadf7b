#pragma once

// C++17. Products of sparse matrices in CSR form that share a pattern, one for each head, and dense
// ones. offsets has rows + 1 entries.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y(rows, heads, features) = A x with a (rows, cols) A of nnz entries for each head. Entry e of
    // A stands in column columns[e] and has the values values[order[e] * heads + head], where a
    // null `order` stands for the identity and null `values` for ones. (The transposed product
    // reads the values of A through the order of its reverse pattern.) Rows of x and y start ldx
    // and ldy elements after one another. A row's terms are added in their order (on CUDA devices
    // in an order that is always the same); a row without entries is zero.
    template <class T>
    void spmm(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t heads,
              std::int64_t features, const std::int64_t* offsets, const std::int32_t* columns,
              const std::int64_t* order, const T* values, const T* x, std::int64_t ldx, T* y,
              std::int64_t ldy);

    // gvalues[e, head] = <gy[row of e, head, :], x[columns[e], head, :]>: the gradient of A's
    // values, and the scores of pairs of rows (sddmm).
    template <class T>
    void spmm_backward_values(std::int64_t rows, std::int64_t nnz, std::int64_t heads,
                              std::int64_t features, const std::int64_t* offsets,
                              const std::int32_t* columns, const T* gy, std::int64_t ldgy,
                              const T* x, std::int64_t ldx, T* gvalues);)
