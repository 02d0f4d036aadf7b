#pragma once

// OpenBLAS for both types, and what cuBLAS and cuBLASLt check alike.

#include <cblas.h>

#include <cstddef>
#include <cstdint>

#include <cublas_v2.h>

namespace lipgrad_emulation {

// Bytes from the first to the last element of a column-major matrix.
inline std::size_t matrix_bytes(std::int64_t rows, std::int64_t cols, std::int64_t ld,
                                std::size_t element) {
  return rows > 0 && cols > 0 ? static_cast<std::size_t>((cols - 1) * ld + rows) * element : 0;
}

inline CBLAS_TRANSPOSE transposed(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
}
inline void gemm(cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                 float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                 float* c, int ldc) {
  cblas_sgemm(CblasColMajor, transposed(transa), transposed(transb), m, n, k, alpha, a, lda, b, ldb,
              beta, c, ldc);
}
inline void gemm(cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                 double alpha, const double* a, int lda, const double* b, int ldb, double beta,
                 double* c, int ldc) {
  cblas_dgemm(CblasColMajor, transposed(transa), transposed(transb), m, n, k, alpha, a, lda, b, ldb,
              beta, c, ldc);
}

}  // namespace lipgrad_emulation
