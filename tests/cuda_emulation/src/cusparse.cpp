// cuemu: CSR SpMM / SpMV / SDDMM of the cuSPARSE generic API as plain loops, with the checks that the real library leaves out
// (row offsets and column indices in range, extents inside the allocations, the workspace really passed).
#include <cusparse.h>
#include <string>
struct cusparseContext { cudaStream_t stream = nullptr; };
struct cusparseSpMatDescr { int64_t rows, cols, nnz; void *off, *col, *val; cusparseIndexType_t offT, colT; cusparseIndexBase_t base; cudaDataType type; };
struct cusparseDnMatDescr { int64_t rows, cols, ld; void* val; cudaDataType type; cusparseOrder_t order; };
struct cusparseDnVecDescr { int64_t size; void* val; cudaDataType type; };
namespace {
using S = cusparseStatus_t;
constexpr size_t kBuf = 512;                            // a non-zero size, so that callers that skip the workspace are found
size_t esz(cudaDataType t) { return t == CUDA_R_64F ? 8 : 4; }
int64_t idx(const void* p, cusparseIndexType_t t, int64_t i) { return t == CUSPARSE_INDEX_64I ? ((const int64_t*)p)[i] : ((const int32_t*)p)[i]; }
bool dn_ok(const cusparseDnMatDescr* m, const char* w) { int64_t o = m->order == CUSPARSE_ORDER_ROW ? m->rows : m->cols, i = m->order == CUSPARSE_ORDER_ROW ? m->cols : m->rows; return !o || !i || lipgrad_emulation::check_range(m->val, ((o - 1) * m->ld + i) * esz(m->type), w); }
bool sp_ok(const cusparseSpMatDescr* m) { return lipgrad_emulation::check_range(m->off, (m->rows + 1) * (m->offT == CUSPARSE_INDEX_64I ? 8 : 4), "csr row offsets") && (!m->nnz || (lipgrad_emulation::check_range(m->col, m->nnz * (m->colT == CUSPARSE_INDEX_64I ? 8 : 4), "csr column indices") && lipgrad_emulation::check_range(m->val, m->nnz * esz(m->type), "csr values"))); }
void bad(const char* w) { fprintf(stderr, "emulation: cusparse: %s\n", w); abort(); }
template <class T> T& at(const cusparseDnMatDescr* m, int64_t r, int64_t c) { return ((T*)m->val)[m->order == CUSPARSE_ORDER_ROW ? r * m->ld + c : c * m->ld + r]; }
template <class F> void each(const cusparseSpMatDescr* A, F f) {                  // f(row, col, position)
  int64_t b = A->base, p = b;
  for (int64_t r = 0; r < A->rows; r++) { int64_t s = idx(A->off, A->offT, r), e = idx(A->off, A->offT, r + 1); if (s != p || e < s || e - b > A->nnz) bad("row offsets are not monotonic or exceed nnz"); p = e;
    for (int64_t i = s - b; i < e - b; i++) { int64_t c = idx(A->col, A->colT, i) - b; if (c < 0 || c >= A->cols) bad("column index out of range"); f(r, c, i); } }
  if (p - b != A->nnz) bad("the last row offset is not nnz");
}
template <class T> void spmm(cusparseOperation_t a, cusparseOperation_t b, T al, cusparseSpMatDescr A, cusparseDnMatDescr B, T be, cusparseDnMatDescr C) {
  for (int64_t i = 0; i < C.rows; i++) for (int64_t j = 0; j < C.cols; j++) { T& c = at<T>(&C, i, j); c = be == T(0) ? T(0) : be * c; }
  each(&A, [&](int64_t r, int64_t c, int64_t p) { if (a) std::swap(r, c); T v = al * ((const T*)A.val)[p]; for (int64_t j = 0; j < C.cols; j++) at<T>(&C, r, j) += v * (b ? at<T>(&B, j, c) : at<T>(&B, c, j)); });
}
template <class T> void spmv(cusparseOperation_t a, T al, cusparseSpMatDescr A, cusparseDnVecDescr x, T be, cusparseDnVecDescr y) {
  T* Y = (T*)y.val; for (int64_t i = 0; i < y.size; i++) Y[i] = be == T(0) ? T(0) : be * Y[i];
  each(&A, [&](int64_t r, int64_t c, int64_t p) { if (a) std::swap(r, c); Y[r] += al * ((const T*)A.val)[p] * ((const T*)x.val)[c]; });
}
template <class T> void sddmm(cusparseOperation_t a, cusparseOperation_t b, T al, cusparseDnMatDescr A, cusparseDnMatDescr B, T be, cusparseSpMatDescr C) {
  int64_t k = a ? A.rows : A.cols;
  each(&C, [&](int64_t r, int64_t c, int64_t p) { T s = 0; for (int64_t i = 0; i < k; i++) s += (a ? at<T>(&A, i, r) : at<T>(&A, r, i)) * (b ? at<T>(&B, c, i) : at<T>(&B, i, c)); T& v = ((T*)C.val)[p]; v = al * s + (be == T(0) ? T(0) : be * v); });
}
template <class F> S run(cusparseHandle_t h, cudaDataType ct, void* buf, F f) {
  if (!buf || !lipgrad_emulation::check_range(buf, kBuf, "cusparse workspace")) return CUSPARSE_STATUS_INVALID_VALUE;
  if (ct != CUDA_R_32F && ct != CUDA_R_64F) return CUSPARSE_STATUS_NOT_SUPPORTED;
  return lipgrad_emulation::enqueue_host(h->stream, "cusparse", f) ? CUSPARSE_STATUS_EXECUTION_FAILED : CUSPARSE_STATUS_SUCCESS;
}
double sc(const void* p, cudaDataType t) { return t == CUDA_R_64F ? *(const double*)p : *(const float*)p; }
S chk_spmm(cusparseOperation_t a, cusparseOperation_t b, cusparseConstSpMatDescr_t A, cusparseConstDnMatDescr_t B, cusparseDnMatDescr_t C, cudaDataType ct, cusparseSpMMAlg_t alg) {
  int64_t m = a ? A->cols : A->rows, k = a ? A->rows : A->cols;
  if (m != C->rows || k != (b ? B->cols : B->rows) || C->cols != (b ? B->rows : B->cols)) return CUSPARSE_STATUS_INVALID_VALUE;
  if (A->type != ct || B->type != ct || C->type != ct || A->offT != A->colT || (alg == CUSPARSE_SPMM_CSR_ALG3 && a)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  return sp_ok(A) && dn_ok(B, "spmm B") && dn_ok(C, "spmm C") ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_EXECUTION_FAILED;
}
S chk_sddmm(cusparseOperation_t a, cusparseOperation_t b, cusparseConstDnMatDescr_t A, cusparseConstDnMatDescr_t B, cusparseSpMatDescr_t C, cudaDataType ct) {
  if ((a ? A->cols : A->rows) != C->rows || (b ? B->rows : B->cols) != C->cols || (a ? A->rows : A->cols) != (b ? B->cols : B->rows)) return CUSPARSE_STATUS_INVALID_VALUE;
  if (A->type != ct || B->type != ct || C->type != ct) return CUSPARSE_STATUS_NOT_SUPPORTED;
  return sp_ok(C) && dn_ok(A, "sddmm A") && dn_ok(B, "sddmm B") ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_EXECUTION_FAILED;
}
S chk_spmv(cusparseOperation_t a, cusparseConstSpMatDescr_t A, cusparseConstDnVecDescr_t x, cusparseDnVecDescr_t y, cudaDataType ct) {
  if ((a ? A->cols : A->rows) != y->size || (a ? A->rows : A->cols) != x->size) return CUSPARSE_STATUS_INVALID_VALUE;
  if (A->type != ct || x->type != ct || y->type != ct) return CUSPARSE_STATUS_NOT_SUPPORTED;
  return sp_ok(A) && lipgrad_emulation::check_range(x->val, x->size * esz(ct), "spmv x") && lipgrad_emulation::check_range(y->val, y->size * esz(ct), "spmv y") ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_EXECUTION_FAILED;
}
}  // namespace
S cusparseCreate(cusparseHandle_t* h) { *h = new cusparseContext; return CUSPARSE_STATUS_SUCCESS; }
S cusparseDestroy(cusparseHandle_t h) { delete h; return CUSPARSE_STATUS_SUCCESS; }
S cusparseSetStream(cusparseHandle_t h, cudaStream_t s) { h->stream = s; return CUSPARSE_STATUS_SUCCESS; }
const char* cusparseGetErrorString(S s) { return s ? "cusparse error" : "success"; }
S cusparseCreateCsr(cusparseSpMatDescr_t* d, int64_t r, int64_t c, int64_t n, void* o, void* ci, void* v, cusparseIndexType_t ot, cusparseIndexType_t it, cusparseIndexBase_t b, cudaDataType t) { if (r < 0 || c < 0 || n < 0 || n > r * c) return CUSPARSE_STATUS_INVALID_VALUE; *d = new cusparseSpMatDescr{r, c, n, o, ci, v, ot, it, b, t}; return CUSPARSE_STATUS_SUCCESS; }
S cusparseCreateConstCsr(cusparseConstSpMatDescr_t* d, int64_t r, int64_t c, int64_t n, const void* o, const void* ci, const void* v, cusparseIndexType_t ot, cusparseIndexType_t it, cusparseIndexBase_t b, cudaDataType t) { return cusparseCreateCsr((cusparseSpMatDescr_t*)d, r, c, n, (void*)o, (void*)ci, (void*)v, ot, it, b, t); }
S cusparseDestroySpMat(cusparseConstSpMatDescr_t d) { delete d; return CUSPARSE_STATUS_SUCCESS; }
S cusparseCreateDnMat(cusparseDnMatDescr_t* d, int64_t r, int64_t c, int64_t ld, void* v, cudaDataType t, cusparseOrder_t o) { if (r < 0 || c < 0 || ld < (o == CUSPARSE_ORDER_ROW ? c : r)) return CUSPARSE_STATUS_INVALID_VALUE; *d = new cusparseDnMatDescr{r, c, ld, v, t, o}; return CUSPARSE_STATUS_SUCCESS; }
S cusparseCreateConstDnMat(cusparseConstDnMatDescr_t* d, int64_t r, int64_t c, int64_t ld, const void* v, cudaDataType t, cusparseOrder_t o) { return cusparseCreateDnMat((cusparseDnMatDescr_t*)d, r, c, ld, (void*)v, t, o); }
S cusparseDestroyDnMat(cusparseConstDnMatDescr_t d) { delete d; return CUSPARSE_STATUS_SUCCESS; }
S cusparseCreateDnVec(cusparseDnVecDescr_t* d, int64_t n, void* v, cudaDataType t) { *d = new cusparseDnVecDescr{n, v, t}; return CUSPARSE_STATUS_SUCCESS; }
S cusparseCreateConstDnVec(cusparseConstDnVecDescr_t* d, int64_t n, const void* v, cudaDataType t) { return cusparseCreateDnVec((cusparseDnVecDescr_t*)d, n, (void*)v, t); }
S cusparseDestroyDnVec(cusparseConstDnVecDescr_t d) { delete d; return CUSPARSE_STATUS_SUCCESS; }
S cusparseSpMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t, const void*, cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t, size_t* n) { *n = kBuf; return CUSPARSE_STATUS_SUCCESS; }
S cusparseSpMM_preprocess(cusparseHandle_t, cusparseOperation_t a, cusparseOperation_t b, const void*, cusparseConstSpMatDescr_t A, cusparseConstDnMatDescr_t B, const void*, cusparseDnMatDescr_t C, cudaDataType ct, cusparseSpMMAlg_t alg, void*) { return chk_spmm(a, b, A, B, C, ct, alg); }
S cusparseSpMM(cusparseHandle_t h, cusparseOperation_t a, cusparseOperation_t b, const void* al, cusparseConstSpMatDescr_t A, cusparseConstDnMatDescr_t B, const void* be, cusparseDnMatDescr_t C, cudaDataType ct, cusparseSpMMAlg_t alg, void* buf) {
  if (S s = chk_spmm(a, b, A, B, C, ct, alg)) return s;
  return run(h, ct, buf, [=, al = sc(al, ct), be = sc(be, ct), A = *A, B = *B, C = *C] { if (ct == CUDA_R_32F) spmm<float>(a, b, al, A, B, be, C); else spmm<double>(a, b, al, A, B, be, C); });
}
S cusparseSpMV_bufferSize(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t, cusparseConstDnVecDescr_t, const void*, cusparseDnVecDescr_t, cudaDataType, cusparseSpMVAlg_t, size_t* n) { *n = kBuf; return CUSPARSE_STATUS_SUCCESS; }
S cusparseSpMV_preprocess(cusparseHandle_t, cusparseOperation_t a, const void*, cusparseConstSpMatDescr_t A, cusparseConstDnVecDescr_t x, const void*, cusparseDnVecDescr_t y, cudaDataType ct, cusparseSpMVAlg_t, void*) { return chk_spmv(a, A, x, y, ct); }
S cusparseSpMV(cusparseHandle_t h, cusparseOperation_t a, const void* al, cusparseConstSpMatDescr_t A, cusparseConstDnVecDescr_t x, const void* be, cusparseDnVecDescr_t y, cudaDataType ct, cusparseSpMVAlg_t, void* buf) {
  if (S s = chk_spmv(a, A, x, y, ct)) return s;
  return run(h, ct, buf, [=, al = sc(al, ct), be = sc(be, ct), A = *A, x = *x, y = *y] { if (ct == CUDA_R_32F) spmv<float>(a, al, A, x, be, y); else spmv<double>(a, al, A, x, be, y); });
}
S cusparseSDDMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*, cusparseConstDnMatDescr_t, cusparseConstDnMatDescr_t, const void*, cusparseSpMatDescr_t, cudaDataType, cusparseSDDMMAlg_t, size_t* n) { *n = kBuf; return CUSPARSE_STATUS_SUCCESS; }
S cusparseSDDMM_preprocess(cusparseHandle_t, cusparseOperation_t a, cusparseOperation_t b, const void*, cusparseConstDnMatDescr_t A, cusparseConstDnMatDescr_t B, const void*, cusparseSpMatDescr_t C, cudaDataType ct, cusparseSDDMMAlg_t, void*) { return chk_sddmm(a, b, A, B, C, ct); }
S cusparseSDDMM(cusparseHandle_t h, cusparseOperation_t a, cusparseOperation_t b, const void* al, cusparseConstDnMatDescr_t A, cusparseConstDnMatDescr_t B, const void* be, cusparseSpMatDescr_t C, cudaDataType ct, cusparseSDDMMAlg_t, void* buf) {
  if (S s = chk_sddmm(a, b, A, B, C, ct)) return s;
  return run(h, ct, buf, [=, al = sc(al, ct), be = sc(be, ct), A = *A, B = *B, C = *C] { if (ct == CUDA_R_32F) sddmm<float>(a, b, al, A, B, be, C); else sddmm<double>(a, b, al, A, B, be, C); });
}
