// cuemu: cuBLAS subset over CBLAS. Arguments are checked as cuBLAS documents them, and every matrix's extent is
// checked against its device allocation, which the real library does not do.
#include <cblas.h>
#include <cublas_v2.h>
#include <algorithm>
struct cublasContext { cudaStream_t stream = nullptr; cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST; };
namespace {
CBLAS_TRANSPOSE tr(cublasOperation_t o) { return o == CUBLAS_OP_N ? CblasNoTrans : CblasTrans; }
void gemm(cublasOperation_t a, cublasOperation_t b, int m, int n, int k, float al, const float* A, int lda, const float* B, int ldb, float be, float* C, int ldc) { cblas_sgemm(CblasColMajor, tr(a), tr(b), m, n, k, al, A, lda, B, ldb, be, C, ldc); }
void gemm(cublasOperation_t a, cublasOperation_t b, int m, int n, int k, double al, const double* A, int lda, const double* B, int ldb, double be, double* C, int ldc) { cblas_dgemm(CblasColMajor, tr(a), tr(b), m, n, k, al, A, lda, B, ldb, be, C, ldc); }
void gemv(cublasOperation_t a, int m, int n, float al, const float* A, int lda, const float* x, int ix, float be, float* y, int iy) { cblas_sgemv(CblasColMajor, tr(a), m, n, al, A, lda, x, ix, be, y, iy); }
void gemv(cublasOperation_t a, int m, int n, double al, const double* A, int lda, const double* x, int ix, double be, double* y, int iy) { cblas_dgemv(CblasColMajor, tr(a), m, n, al, A, lda, x, ix, be, y, iy); }
size_t extent(int rows, int cols, int ld) { return rows && cols ? size_t(cols - 1) * ld + rows : 0; }
template <class T> struct Scalars { T a, b; const T *pa, *pb; bool dev; void load() { if (dev) { a = *pa; b = *pb; } } };
template <class T> Scalars<T> scalars(cublasHandle_t h, const T* a, const T* b) { bool d = h->mode == CUBLAS_POINTER_MODE_DEVICE; return {d ? T(0) : *a, d ? T(0) : *b, a, b, d}; }
template <class T> cublasStatus_t batched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* al, const T* A, int lda, long long sA, const T* B, int ldb, long long sB, const T* be, T* C, int ldc, long long sC, int batch) {
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  int ra = ta == CUBLAS_OP_N ? m : k, ca = ta == CUBLAS_OP_N ? k : m, rb = tb == CUBLAS_OP_N ? k : n, cb = tb == CUBLAS_OP_N ? n : k;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < std::max(1, ra) || ldb < std::max(1, rb) || ldc < std::max(1, m)) return CUBLAS_STATUS_INVALID_VALUE;
  if (h->mode == CUBLAS_POINTER_MODE_HOST && (lipgrad_emulation::is_device_ptr(al) || lipgrad_emulation::is_device_ptr(be))) return CUBLAS_STATUS_INVALID_VALUE;
  if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
  auto ok = [&](const T* p, size_t ext, long long s, const char* w) { return !ext || lipgrad_emulation::check_range(p, (size_t(s) * (batch - 1) + ext) * sizeof(T), w); };
  if (!ok(A, extent(ra, ca, lda), sA, "gemm A") || !ok(B, extent(rb, cb, ldb), sB, "gemm B") || !ok(C, extent(m, n, ldc), sC, "gemm C")) return CUBLAS_STATUS_EXECUTION_FAILED;
  auto s = scalars(h, al, be);
  return lipgrad_emulation::enqueue_host(h->stream, "gemm", [=]() mutable { s.load(); for (int i = 0; i < batch; i++) gemm(ta, tb, m, n, k, s.a, A + i * sA, lda, B + i * sB, ldb, s.b, C + i * sC, ldc); }) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}  // namespace
cublasStatus_t cublasCreate(cublasHandle_t* h) { openblas_set_num_threads(1); *h = new cublasContext; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy(cublasHandle_t h) { delete h; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) { h->stream = s; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode(cublasHandle_t h, cublasPointerMode_t m) { h->mode = m; return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void* p, size_t n) { return !p || lipgrad_emulation::check_range(p, n, "cublasSetWorkspace") ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE; }
const char* cublasGetStatusString(cublasStatus_t s) { return s ? "cublas error" : "success"; }
#define GEMM(L, T, CB) \
  cublasStatus_t cublas##L##gemm(cublasHandle_t h, cublasOperation_t a, cublasOperation_t b, int m, int n, int k, const T* al, const T* A, int lda, const T* B, int ldb, const T* be, T* C, int ldc) { return batched<T>(h, a, b, m, n, k, al, A, lda, 0, B, ldb, 0, be, C, ldc, 0, 1); } \
  cublasStatus_t cublas##L##gemmStridedBatched(cublasHandle_t h, cublasOperation_t a, cublasOperation_t b, int m, int n, int k, const T* al, const T* A, int lda, long long sA, const T* B, int ldb, long long sB, const T* be, T* C, int ldc, long long sC, int batch) { return batched<T>(h, a, b, m, n, k, al, A, lda, sA, B, ldb, sB, be, C, ldc, sC, batch); } \
  cublasStatus_t cublas##L##gemv(cublasHandle_t h, cublasOperation_t a, int m, int n, const T* al, const T* A, int lda, const T* x, int ix, const T* be, T* y, int iy) { \
    if (m < 0 || n < 0 || !ix || !iy || lda < std::max(1, m)) { return CUBLAS_STATUS_INVALID_VALUE; } if (!m || !n) { return CUBLAS_STATUS_SUCCESS; } int nx = a == CUBLAS_OP_N ? n : m, ny = a == CUBLAS_OP_N ? m : n; \
    if (!lipgrad_emulation::check_range(A, extent(m, n, lda) * sizeof(T), "gemv A") || !lipgrad_emulation::check_range(x, (size_t(nx - 1) * abs(ix) + 1) * sizeof(T), "gemv x") || !lipgrad_emulation::check_range(y, (size_t(ny - 1) * abs(iy) + 1) * sizeof(T), "gemv y")) return CUBLAS_STATUS_EXECUTION_FAILED; \
    auto s = scalars(h, al, be); return lipgrad_emulation::enqueue_host(h->stream, "gemv", [=]() mutable { s.load(); gemv(a, m, n, s.a, A, lda, x, ix, s.b, y, iy); }) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS; } \
  cublasStatus_t cublas##L##axpy(cublasHandle_t h, int n, const T* al, const T* x, int ix, T* y, int iy) { if (n <= 0) { return CUBLAS_STATUS_SUCCESS; } \
    if (!lipgrad_emulation::check_range(x, (size_t(n - 1) * abs(ix) + 1) * sizeof(T), "axpy x") || !lipgrad_emulation::check_range(y, (size_t(n - 1) * abs(iy) + 1) * sizeof(T), "axpy y")) return CUBLAS_STATUS_EXECUTION_FAILED; \
    auto s = scalars(h, al, al); return lipgrad_emulation::enqueue_host(h->stream, "axpy", [=]() mutable { s.load(); CB(n, s.a, x, ix, y, iy); }) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS; }
GEMM(S, float, cblas_saxpy) GEMM(D, double, cblas_daxpy)
