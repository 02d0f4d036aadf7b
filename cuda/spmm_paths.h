#pragma once

// C++17, private to cuda/ and its tests: the two ways of spmm.

#include <cstdint>

namespace lipgrad::cuda {

// Own kernel: everything that the declaration of spmm allows.
template <class T>
void spmm_rows(std::int64_t rows, std::int64_t nnz, std::int64_t heads, std::int64_t features,
               const std::int64_t* offsets, const std::int32_t* columns, const std::int64_t* order,
               const T* values, const T* x, std::int64_t ldx, T* y, std::int64_t ldy);

// cuSPARSE's deterministic algorithm for products of one head, not transposed: wants values in
// order, offsets of 32 bits (made here), and all sizes below 2^31. False, and nothing done, where
// the installed cuSPARSE has no such product.
template <class T>
bool spmm_cusparse(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t features,
                   const std::int64_t* offsets, const std::int32_t* columns, const T* values,
                   const T* x, std::int64_t ldx, T* y, std::int64_t ldy);

// Whether spmm leaves the product to cuSPARSE.
bool fits_cusparse(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t features,
                   const std::int64_t* order, const void* values, std::int64_t ldx,
                   std::int64_t ldy);

// to[i] = from[i] < 2^31.
void narrow(std::int64_t n, const std::int64_t* from, std::int32_t* to);

}  // namespace lipgrad::cuda
