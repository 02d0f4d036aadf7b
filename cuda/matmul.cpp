#include <lipgrad/ops/kernels/matmul.h>

#include <algorithm>
#include <limits>

#include <lipgrad/core/check.h>
#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/kernels/accumulate.h>

#include "libraries.h"

namespace lipgrad::cuda {
namespace {

// cuBLAS counts in int. Larger products are computed in parts where the leading dimensions allow.
constexpr std::int64_t most = std::numeric_limits<int>::max();
constexpr std::int64_t part = std::int64_t{1} << 30;
constexpr std::int64_t most_batches = 65535;  // of one launch

cublasOperation_t op(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// Column-major: C(m, n) = op(A) op(B) + beta C.
void gemm(cublasHandle_t blas, bool ta, bool tb, int m, int n, int k, const float* a, int lda,
          long long stride_a, const float* b, int ldb, long long stride_b, float beta, float* c,
          int ldc, long long stride_c, int batch) {
  const float one = 1;
  if (batch == 1) {
    check(cublasSgemm(blas, op(ta), op(tb), m, n, k, &one, a, lda, b, ldb, &beta, c, ldc),
          "cublasSgemm");
  } else {
    check(cublasSgemmStridedBatched(blas, op(ta), op(tb), m, n, k, &one, a, lda, stride_a, b, ldb,
                                    stride_b, &beta, c, ldc, stride_c, batch),
          "cublasSgemmStridedBatched");
  }
}
void gemm(cublasHandle_t blas, bool ta, bool tb, int m, int n, int k, const double* a, int lda,
          long long stride_a, const double* b, int ldb, long long stride_b, double beta, double* c,
          int ldc, long long stride_c, int batch) {
  const double one = 1;
  if (batch == 1) {
    check(cublasDgemm(blas, op(ta), op(tb), m, n, k, &one, a, lda, b, ldb, &beta, c, ldc),
          "cublasDgemm");
  } else {
    check(cublasDgemmStridedBatched(blas, op(ta), op(tb), m, n, k, &one, a, lda, stride_a, b, ldb,
                                    stride_b, &beta, c, ldc, stride_c, batch),
          "cublasDgemmStridedBatched");
  }
}

}  // namespace

template <class T>
void matmul(std::int64_t batch, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n,
            std::int64_t k, const T* a, std::int64_t stride_a, const T* b, std::int64_t stride_b,
            T* c) {
  if (batch == 0 || m == 0 || n == 0) return;
  if (k == 0) return fill(c, batch * m * n, T(0));
  const std::int64_t lda = trans_a ? m : k, ldb = trans_b ? k : n;
  LIPGRAD_CHECK(lda <= most && ldb <= most && n <= most,
                "matmul: rows of more than {} elements: ({}, {}){} times ({}, {}){}", most,
                trans_a ? k : m, lda, trans_a ? " transposed" : "", trans_b ? n : k, ldb,
                trans_b ? " transposed" : "");
  Context& device = context();
  const std::lock_guard lock(device.mutex);
  const cublasHandle_t blas = libraries(device).blas;
  check(cublasSetMathMode(blas, matmul_precision() == MatmulPrecision::tf32
                                    ? CUBLAS_TF32_TENSOR_OP_MATH
                                    : CUBLAS_PEDANTIC_MATH),
        "cublasSetMathMode");
  // Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T over the same memory.
  for (std::int64_t first = 0; first < batch; first += most_batches) {
    const std::int64_t count = std::min(most_batches, batch - first);
    for (std::int64_t i = 0; i < m; i += part) {
      for (std::int64_t l = 0; l < k; l += part) {
        gemm(blas, trans_b, trans_a, static_cast<int>(n), static_cast<int>(std::min(part, m - i)),
             static_cast<int>(std::min(part, k - l)),
             b + first * stride_b + (trans_b ? l : l * ldb), static_cast<int>(ldb), stride_b,
             a + first * stride_a + (trans_a ? l * lda + i : i * lda + l), static_cast<int>(lda),
             stride_a, l == 0 ? T(0) : T(1), c + first * m * n + i * n, static_cast<int>(n), m * n,
             static_cast<int>(count));
      }
    }
  }
}

#define INSTANTIATE(T)                                                                     \
  template void matmul(std::int64_t, bool, bool, std::int64_t, std::int64_t, std::int64_t, \
                       const T*, std::int64_t, const T*, std::int64_t, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
