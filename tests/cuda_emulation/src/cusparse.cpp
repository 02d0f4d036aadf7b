// cuSPARSE as plain loops, with the checks that the real library leaves out: offsets and columns in
// range, everything inside its allocation, the workspace really passed.

#include <cusparse.h>

#include <utility>

#include "state.h"

using namespace lipgrad_emulation;

struct cusparseContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};
struct cusparseSpMatDescr {
  int64_t rows, cols, nnz;
  void *offsets, *columns, *values;
  cusparseIndexType_t offset_type, column_type;
  cusparseIndexBase_t base;
  cudaDataType type;
};
struct cusparseDnMatDescr {
  int64_t rows, cols, ld;
  void* values;
  cudaDataType type;
  cusparseOrder_t order;
};
struct cusparseDnVecDescr {
  int64_t size;
  void* values;
  cudaDataType type;
};

namespace {

using Sparse = cusparseSpMatDescr;
using Dense = cusparseDnMatDescr;
using Vector = cusparseDnVecDescr;

// A size that is not zero, so that callers who leave the workspace out are found.
constexpr std::size_t kWorkspace = 512;

std::size_t element_size(cudaDataType type) { return type == CUDA_R_64F ? 8 : 4; }
std::size_t index_size(cusparseIndexType_t type) { return type == CUSPARSE_INDEX_64I ? 8 : 4; }

int64_t index_at(const void* p, cusparseIndexType_t type, int64_t i) {
  return type == CUSPARSE_INDEX_64I ? static_cast<const int64_t*>(p)[i]
                                    : static_cast<const int32_t*>(p)[i];
}

template <class T>
T& at(const Dense& m, int64_t row, int64_t col) {
  return static_cast<T*>(
      m.values)[m.order == CUSPARSE_ORDER_ROW ? row * m.ld + col : col * m.ld + row];
}

bool inside(const Dense& m, int device, const char* what) {
  const int64_t outer = m.order == CUSPARSE_ORDER_ROW ? m.rows : m.cols;
  const int64_t inner = m.order == CUSPARSE_ORDER_ROW ? m.cols : m.rows;
  return outer == 0 || inner == 0 ||
         check_range(m.values, ((outer - 1) * m.ld + inner) * element_size(m.type), what, device);
}

bool inside(const Sparse& m, int device) {
  return check_range(m.offsets, (m.rows + 1) * index_size(m.offset_type), "CSR offsets", device) &&
         (m.nnz == 0 ||
          (check_range(m.columns, m.nnz * index_size(m.column_type), "CSR columns", device) &&
           check_range(m.values, m.nnz * element_size(m.type), "CSR values", device)));
}

// Calls f(row, col, position) for every entry; tells of a matrix that is none.
template <class F>
void each_entry(const Sparse& m, F f) {
  const auto bad = [](const char* what) {
    report_sticky(cudaErrorIllegalAddress, std::string("cuSPARSE: ") + what);
  };
  const int64_t base = m.base;
  int64_t before = base;
  for (int64_t row = 0; row < m.rows; ++row) {
    const int64_t begin = index_at(m.offsets, m.offset_type, row);
    const int64_t end = index_at(m.offsets, m.offset_type, row + 1);
    if (begin != before || end < begin || end - base > m.nnz)
      return bad("row offsets that do not rise from the base to nnz");
    before = end;
    for (int64_t i = begin - base; i < end - base; ++i) {
      const int64_t col = index_at(m.columns, m.column_type, i) - base;
      if (col < 0 || col >= m.cols) return bad("a column that is out of range");
      f(row, col, i);
    }
  }
  if (before - base != m.nnz) bad("a last row offset that is not nnz");
}

template <class T>
void scale(T& x, T beta) {
  x = beta == T{0} ? T{0} : beta * x;
}

template <class T>
void spmm(bool trans_a, bool trans_b, T alpha, const Sparse& a, const Dense& b, T beta,
          const Dense& c) {
  for (int64_t row = 0; row < c.rows; ++row)
    for (int64_t col = 0; col < c.cols; ++col) scale(at<T>(c, row, col), beta);
  each_entry(a, [&](int64_t row, int64_t col, int64_t i) {
    if (trans_a) std::swap(row, col);
    const T value = alpha * static_cast<const T*>(a.values)[i];
    for (int64_t k = 0; k < c.cols; ++k)
      at<T>(c, row, k) += value * (trans_b ? at<T>(b, k, col) : at<T>(b, col, k));
  });
}

template <class T>
void spmv(bool trans_a, T alpha, const Sparse& a, const Vector& x, T beta, const Vector& y) {
  T* out = static_cast<T*>(y.values);
  for (int64_t i = 0; i < y.size; ++i) scale(out[i], beta);
  each_entry(a, [&](int64_t row, int64_t col, int64_t i) {
    if (trans_a) std::swap(row, col);
    out[row] += alpha * static_cast<const T*>(a.values)[i] * static_cast<const T*>(x.values)[col];
  });
}

template <class T>
void sddmm(bool trans_a, bool trans_b, T alpha, const Dense& a, const Dense& b, T beta,
           const Sparse& c) {
  const int64_t inner = trans_a ? a.rows : a.cols;
  each_entry(c, [&](int64_t row, int64_t col, int64_t i) {
    T sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += (trans_a ? at<T>(a, k, row) : at<T>(a, row, k)) *
             (trans_b ? at<T>(b, col, k) : at<T>(b, k, col));
    T& value = static_cast<T*>(c.values)[i];
    scale(value, beta);
    value += alpha * sum;
  });
}

cusparseStatus_t check_spmm(int device, cusparseOperation_t op_a, cusparseOperation_t op_b,
                            const Sparse& a, const Dense& b, const Dense& c, cudaDataType type,
                            cusparseSpMMAlg_t algorithm) {
  const int64_t m = op_a ? a.cols : a.rows, k = op_a ? a.rows : a.cols;
  if (m != c.rows || k != (op_b ? b.cols : b.rows) || c.cols != (op_b ? b.rows : b.cols))
    return CUSPARSE_STATUS_INVALID_VALUE;
  if (a.type != type || b.type != type || c.type != type || a.offset_type != a.column_type)
    return CUSPARSE_STATUS_NOT_SUPPORTED;
  if (algorithm == CUSPARSE_SPMM_CSR_ALG3 && op_a) return CUSPARSE_STATUS_NOT_SUPPORTED;
  return inside(a, device) && inside(b, device, "SpMM B") && inside(c, device, "SpMM C")
             ? CUSPARSE_STATUS_SUCCESS
             : CUSPARSE_STATUS_EXECUTION_FAILED;
}

cusparseStatus_t check_spmv(int device, cusparseOperation_t op_a, const Sparse& a, const Vector& x,
                            const Vector& y, cudaDataType type) {
  if ((op_a ? a.cols : a.rows) != y.size || (op_a ? a.rows : a.cols) != x.size)
    return CUSPARSE_STATUS_INVALID_VALUE;
  if (a.type != type || x.type != type || y.type != type || a.offset_type != a.column_type)
    return CUSPARSE_STATUS_NOT_SUPPORTED;
  return inside(a, device) &&
                 check_range(x.values, x.size * element_size(type), "SpMV x", device) &&
                 check_range(y.values, y.size * element_size(type), "SpMV y", device)
             ? CUSPARSE_STATUS_SUCCESS
             : CUSPARSE_STATUS_EXECUTION_FAILED;
}

cusparseStatus_t check_sddmm(int device, cusparseOperation_t op_a, cusparseOperation_t op_b,
                             const Dense& a, const Dense& b, const Sparse& c, cudaDataType type) {
  if ((op_a ? a.cols : a.rows) != c.rows || (op_b ? b.rows : b.cols) != c.cols ||
      (op_a ? a.rows : a.cols) != (op_b ? b.cols : b.rows))
    return CUSPARSE_STATUS_INVALID_VALUE;
  if (a.type != type || b.type != type || c.type != type || c.offset_type != c.column_type)
    return CUSPARSE_STATUS_NOT_SUPPORTED;
  return inside(c, device) && inside(a, device, "SDDMM A") && inside(b, device, "SDDMM B")
             ? CUSPARSE_STATUS_SUCCESS
             : CUSPARSE_STATUS_EXECUTION_FAILED;
}

double scalar(const void* p, cudaDataType type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(p) : *static_cast<const float*>(p);
}

// Queues f(T{}) with T of the type.
template <class F>
cusparseStatus_t queue(cusparseHandle_t handle, const char* what, cudaDataType type, void* buffer,
                       F f) {
  if (!buffer || !check_range(buffer, kWorkspace, "cuSPARSE workspace", handle->device))
    return CUSPARSE_STATUS_INVALID_VALUE;
  if (type != CUDA_R_32F && type != CUDA_R_64F) return CUSPARSE_STATUS_NOT_SUPPORTED;
  if (stream_device(handle->stream) != handle->device) return CUSPARSE_STATUS_INVALID_VALUE;
  const auto run = [f, type] { type == CUDA_R_32F ? f(float{}) : f(double{}); };
  return enqueue_host(handle->stream, what, run) == cudaSuccess ? CUSPARSE_STATUS_SUCCESS
                                                                : CUSPARSE_STATUS_EXECUTION_FAILED;
}

template <class T>
T* plain(const T* p) {
  return const_cast<T*>(p);
}

}  // namespace

cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
  *handle = new cusparseContext{current_device()};
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
  delete handle;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseGetStream(cusparseHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUSPARSE_STATUS_SUCCESS;
}

const char* cusparseGetErrorName(cusparseStatus_t status) {
  switch (status) {
    case CUSPARSE_STATUS_SUCCESS:
      return "CUSPARSE_STATUS_SUCCESS";
    case CUSPARSE_STATUS_INVALID_VALUE:
      return "CUSPARSE_STATUS_INVALID_VALUE";
    case CUSPARSE_STATUS_EXECUTION_FAILED:
      return "CUSPARSE_STATUS_EXECUTION_FAILED";
    case CUSPARSE_STATUS_NOT_SUPPORTED:
      return "CUSPARSE_STATUS_NOT_SUPPORTED";
    default:
      return "cuSPARSE error";
  }
}

const char* cusparseGetErrorString(cusparseStatus_t status) { return cusparseGetErrorName(status); }

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* matrix, int64_t rows, int64_t cols,
                                   int64_t nnz, void* offsets, void* columns, void* values,
                                   cusparseIndexType_t offset_type, cusparseIndexType_t column_type,
                                   cusparseIndexBase_t base, cudaDataType value_type) {
  if (rows < 0 || cols < 0 || nnz < 0) return CUSPARSE_STATUS_INVALID_VALUE;
  *matrix = new Sparse{rows,   cols,        nnz,         offsets, columns,
                       values, offset_type, column_type, base,    value_type};
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateConstCsr(cusparseConstSpMatDescr_t* matrix, int64_t rows,
                                        int64_t cols, int64_t nnz, const void* offsets,
                                        const void* columns, const void* values,
                                        cusparseIndexType_t offset_type,
                                        cusparseIndexType_t column_type, cusparseIndexBase_t base,
                                        cudaDataType value_type) {
  cusparseSpMatDescr_t made = nullptr;
  const cusparseStatus_t status =
      cusparseCreateCsr(&made, rows, cols, nnz, plain(offsets), plain(columns), plain(values),
                        offset_type, column_type, base, value_type);
  *matrix = made;
  return status;
}

cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t matrix) {
  delete matrix;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* matrix, int64_t rows, int64_t cols,
                                     int64_t ld, void* values, cudaDataType value_type,
                                     cusparseOrder_t order) {
  if (rows < 0 || cols < 0 || ld < (order == CUSPARSE_ORDER_ROW ? cols : rows))
    return CUSPARSE_STATUS_INVALID_VALUE;
  *matrix = new Dense{rows, cols, ld, values, value_type, order};
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateConstDnMat(cusparseConstDnMatDescr_t* matrix, int64_t rows,
                                          int64_t cols, int64_t ld, const void* values,
                                          cudaDataType value_type, cusparseOrder_t order) {
  cusparseDnMatDescr_t made = nullptr;
  const cusparseStatus_t status =
      cusparseCreateDnMat(&made, rows, cols, ld, plain(values), value_type, order);
  *matrix = made;
  return status;
}

cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t matrix) {
  delete matrix;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t* vector, int64_t size, void* values,
                                     cudaDataType value_type) {
  *vector = new Vector{size, values, value_type};
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateConstDnVec(cusparseConstDnVecDescr_t* vector, int64_t size,
                                          const void* values, cudaDataType value_type) {
  *vector = new Vector{size, plain(values), value_type};
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t vector) {
  delete vector;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a,
                                         cusparseOperation_t op_b, const void*,
                                         cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                         const void*, cusparseDnMatDescr_t c,
                                         cudaDataType compute_type, cusparseSpMMAlg_t algorithm,
                                         size_t* bytes) {
  *bytes = kWorkspace;
  return check_spmm(handle->device, op_a, op_b, *a, *b, *c, compute_type, algorithm);
}

cusparseStatus_t cusparseSpMM_preprocess(cusparseHandle_t handle, cusparseOperation_t op_a,
                                         cusparseOperation_t op_b, const void*,
                                         cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                         const void*, cusparseDnMatDescr_t c,
                                         cudaDataType compute_type, cusparseSpMMAlg_t algorithm,
                                         void*) {
  return check_spmm(handle->device, op_a, op_b, *a, *b, *c, compute_type, algorithm);
}

cusparseStatus_t cusparseSpMM(cusparseHandle_t handle, cusparseOperation_t op_a,
                              cusparseOperation_t op_b, const void* alpha,
                              cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                              const void* beta, cusparseDnMatDescr_t c, cudaDataType compute_type,
                              cusparseSpMMAlg_t algorithm, void* buffer) {
  if (const auto status =
          check_spmm(handle->device, op_a, op_b, *a, *b, *c, compute_type, algorithm))
    return status;
  return queue(handle, "SpMM", compute_type, buffer,
               [=, alpha = scalar(alpha, compute_type), beta = scalar(beta, compute_type), a = *a,
                b = *b, c = *c](auto tag) {
                 using T = decltype(tag);
                 spmm<T>(op_a != 0, op_b != 0, static_cast<T>(alpha), a, b, static_cast<T>(beta),
                         c);
               });
}

cusparseStatus_t cusparseSpMV_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a,
                                         const void*, cusparseConstSpMatDescr_t a,
                                         cusparseConstDnVecDescr_t x, const void*,
                                         cusparseDnVecDescr_t y, cudaDataType compute_type,
                                         cusparseSpMVAlg_t, size_t* bytes) {
  *bytes = kWorkspace;
  return check_spmv(handle->device, op_a, *a, *x, *y, compute_type);
}

cusparseStatus_t cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t op_a, const void* alpha,
                              cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x,
                              const void* beta, cusparseDnVecDescr_t y, cudaDataType compute_type,
                              cusparseSpMVAlg_t, void* buffer) {
  if (const auto status = check_spmv(handle->device, op_a, *a, *x, *y, compute_type)) return status;
  return queue(handle, "SpMV", compute_type, buffer,
               [=, alpha = scalar(alpha, compute_type), beta = scalar(beta, compute_type), a = *a,
                x = *x, y = *y](auto tag) {
                 using T = decltype(tag);
                 spmv<T>(op_a != 0, static_cast<T>(alpha), a, x, static_cast<T>(beta), y);
               });
}

cusparseStatus_t cusparseSDDMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a,
                                          cusparseOperation_t op_b, const void*,
                                          cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b,
                                          const void*, cusparseSpMatDescr_t c,
                                          cudaDataType compute_type, cusparseSDDMMAlg_t,
                                          size_t* bytes) {
  *bytes = kWorkspace;
  return check_sddmm(handle->device, op_a, op_b, *a, *b, *c, compute_type);
}

cusparseStatus_t cusparseSDDMM(cusparseHandle_t handle, cusparseOperation_t op_a,
                               cusparseOperation_t op_b, const void* alpha,
                               cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b,
                               const void* beta, cusparseSpMatDescr_t c, cudaDataType compute_type,
                               cusparseSDDMMAlg_t, void* buffer) {
  if (const auto status = check_sddmm(handle->device, op_a, op_b, *a, *b, *c, compute_type))
    return status;
  return queue(handle, "SDDMM", compute_type, buffer,
               [=, alpha = scalar(alpha, compute_type), beta = scalar(beta, compute_type), a = *a,
                b = *b, c = *c](auto tag) {
                 using T = decltype(tag);
                 sddmm<T>(op_a != 0, op_b != 0, static_cast<T>(alpha), a, b, static_cast<T>(beta),
                          c);
               });
}
