// cuBLAS over OpenBLAS. Arguments are checked as cuBLAS documents them, and every matrix is checked
// to lie inside its allocation, which the real library does not do.

#include <cublas_v2.h>

#include <algorithm>
#include <cstdlib>

#include "gemm.h"
#include "state.h"

using namespace lipgrad_emulation;

struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace {

// Alpha and beta, read now or (in device memory) when the work runs.
template <class T>
class Scalars {
 public:
  Scalars(cublasHandle_t handle, const T* alpha, const T* beta)
      : on_device_(handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE),
        alpha_at_(alpha),
        beta_at_(beta),
        alpha_(on_device_ ? T{} : *alpha),
        beta_(on_device_ ? T{} : *beta) {}
  T alpha() const { return on_device_ ? *alpha_at_ : alpha_; }
  T beta() const { return on_device_ ? *beta_at_ : beta_; }

 private:
  bool on_device_;
  const T *alpha_at_, *beta_at_;
  T alpha_, beta_;
};

template <class T>
bool scalars_fit(cublasHandle_t handle, const T* alpha, const T* beta) {
  const bool wanted = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  return alpha && beta && is_device_pointer(alpha) == wanted && is_device_pointer(beta) == wanted;
}

template <class F>
cublasStatus_t queue(cublasHandle_t handle, const char* what, F run) {
  if (stream_device(handle->stream) != handle->device) return CUBLAS_STATUS_INVALID_VALUE;
  return enqueue_host(handle->stream, what, run) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <class T>
cublasStatus_t gemm_batched(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const T* alpha,
                            const T* a, int lda, long long stride_a, const T* b, int ldb,
                            long long stride_b, const T* beta, T* c, int ldc, long long stride_c,
                            int batch) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  const int a_rows = transa == CUBLAS_OP_N ? m : k, a_cols = transa == CUBLAS_OP_N ? k : m;
  const int b_rows = transb == CUBLAS_OP_N ? k : n, b_cols = transb == CUBLAS_OP_N ? n : k;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < std::max(1, a_rows) ||
      ldb < std::max(1, b_rows) || ldc < std::max(1, m) || !scalars_fit(handle, alpha, beta))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;
  const auto inside = [&](const T* p, int rows, int cols, int ld, long long stride,
                          const char* what) {
    const std::size_t bytes = matrix_bytes(rows, cols, ld, sizeof(T));
    return bytes == 0 ||
           check_range(p, bytes + static_cast<std::size_t>(stride) * (batch - 1) * sizeof(T), what,
                       handle->device);
  };
  const auto all_inside = [=] {
    return inside(a, a_rows, a_cols, lda, stride_a, "gemm A") &&
           inside(b, b_rows, b_cols, ldb, stride_b, "gemm B") &&
           inside(c, m, n, ldc, stride_c, "gemm C");
  };
  if (!all_inside()) return CUBLAS_STATUS_EXECUTION_FAILED;
  return queue(handle, "gemm", [=, scalars = Scalars<T>(handle, alpha, beta)] {
    for (int i = 0; i < batch; ++i)
      gemm(transa, transb, m, n, k, scalars.alpha(), a + i * stride_a, lda, b + i * stride_b, ldb,
           scalars.beta(), c + i * stride_c, ldc);
  });
}

void gemv(cublasOperation_t trans, int m, int n, float alpha, const float* a, int lda,
          const float* x, int incx, float beta, float* y, int incy) {
  cblas_sgemv(CblasColMajor, transposed(trans), m, n, alpha, a, lda, x, incx, beta, y, incy);
}
void gemv(cublasOperation_t trans, int m, int n, double alpha, const double* a, int lda,
          const double* x, int incx, double beta, double* y, int incy) {
  cblas_dgemv(CblasColMajor, transposed(trans), m, n, alpha, a, lda, x, incx, beta, y, incy);
}
void axpy(int n, float alpha, const float* x, int incx, float* y, int incy) {
  cblas_saxpy(n, alpha, x, incx, y, incy);
}
void axpy(int n, double alpha, const double* x, int incx, double* y, int incy) {
  cblas_daxpy(n, alpha, x, incx, y, incy);
}

template <class T>
bool vector_inside(cublasHandle_t handle, const T* p, int n, int increment, const char* what) {
  return check_range(p, (static_cast<std::size_t>(n - 1) * std::abs(increment) + 1) * sizeof(T),
                     what, handle->device);
}

template <class T>
cublasStatus_t checked_gemv(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                            const T* alpha, const T* a, int lda, const T* x, int incx,
                            const T* beta, T* y, int incy) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || incx == 0 || incy == 0 || lda < std::max(1, m) ||
      !scalars_fit(handle, alpha, beta))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  if (!check_range(a, matrix_bytes(m, n, lda, sizeof(T)), "gemv A", handle->device) ||
      !vector_inside(handle, x, trans == CUBLAS_OP_N ? n : m, incx, "gemv x") ||
      !vector_inside(handle, y, trans == CUBLAS_OP_N ? m : n, incy, "gemv y"))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  return queue(handle, "gemv", [=, scalars = Scalars<T>(handle, alpha, beta)] {
    gemv(trans, m, n, scalars.alpha(), a, lda, x, incx, scalars.beta(), y, incy);
  });
}

template <class T>
cublasStatus_t checked_axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx,
                            T* y, int incy) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!scalars_fit(handle, alpha, alpha)) return CUBLAS_STATUS_INVALID_VALUE;
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (!vector_inside(handle, x, n, incx, "axpy x") || !vector_inside(handle, y, n, incy, "axpy y"))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  return queue(handle, "axpy", [=, scalars = Scalars<T>(handle, alpha, alpha)] {
    axpy(n, scalars.alpha(), x, incx, y, incy);
  });
}

}  // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  openblas_set_num_threads(1);
  *handle = new cublasContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  return !workspace || check_range(workspace, bytes, "cublasSetWorkspace", handle->device)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "cuBLAS error";
  }
}

const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

#define LIPGRAD_EMULATION_BLAS(letter, T)                                                         \
  cublasStatus_t cublas##letter##gemm(cublasHandle_t handle, cublasOperation_t transa,            \
                                      cublasOperation_t transb, int m, int n, int k,              \
                                      const T* alpha, const T* a, int lda, const T* b, int ldb,   \
                                      const T* beta, T* c, int ldc) {                             \
    return gemm_batched<T>(handle, transa, transb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, \
                           ldc, 0, 1);                                                            \
  }                                                                                               \
  cublasStatus_t cublas##letter##gemmStridedBatched(                                              \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
      int k, const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb,        \
      long long stride_b, const T* beta, T* c, int ldc, long long stride_c, int batch_count) {    \
    return gemm_batched<T>(handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb,      \
                           stride_b, beta, c, ldc, stride_c, batch_count);                        \
  }                                                                                               \
  cublasStatus_t cublas##letter##gemv(cublasHandle_t handle, cublasOperation_t trans, int m,      \
                                      int n, const T* alpha, const T* a, int lda, const T* x,     \
                                      int incx, const T* beta, T* y, int incy) {                  \
    return checked_gemv<T>(handle, trans, m, n, alpha, a, lda, x, incx, beta, y, incy);           \
  }                                                                                               \
  cublasStatus_t cublas##letter##axpy(cublasHandle_t handle, int n, const T* alpha, const T* x,   \
                                      int incx, T* y, int incy) {                                 \
    return checked_axpy<T>(handle, n, alpha, x, incx, y, incy);                                   \
  }
LIPGRAD_EMULATION_BLAS(S, float)
LIPGRAD_EMULATION_BLAS(D, double)
