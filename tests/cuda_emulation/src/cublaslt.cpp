// cuBLASLt over OpenBLAS and loops: one algorithm, whose requirements are those that the real ones
// are documented to have.

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gemm.h"
#include "state.h"

using namespace lipgrad_emulation;

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute_type;
  cudaDataType_t scale_type;
  cublasOperation_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  cublasLtPointerMode_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t bias_stride = 0, aux_ld = 0, aux_stride = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Operation = cublasLtMatmulDescOpaque_t;

constexpr int kBias = 4, kRelu = 2, kGelu = 32, kAux = 128;
// A size that is not zero, so that callers who leave the workspace out are found.
constexpr std::size_t kWorkspace = 512;

bool has(cublasLtEpilogue_t epilogue, int part) { return (epilogue & part) != 0; }
std::size_t element_size(cudaDataType type) { return type == CUDA_R_64F ? 8 : 4; }

template <class T>
cublasStatus_t store(T& field, const void* value, std::size_t bytes) {
  if (bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t layout_bytes(const Layout& x) {
  const std::size_t one = matrix_bytes(static_cast<int64_t>(x.rows), static_cast<int64_t>(x.cols),
                                       x.ld, element_size(x.type));
  return one == 0 ? 0
                  : one + static_cast<std::size_t>(x.batch - 1) * x.stride * element_size(x.type);
}

// Whether sizes and types agree, and whether there is an algorithm for them.
cublasStatus_t supported(const Operation& op, const Layout& a, const Layout& b, const Layout& c,
                         const Layout& d) {
  const uint64_t m = op.transa == CUBLAS_OP_N ? a.rows : a.cols;
  const uint64_t k = op.transa == CUBLAS_OP_N ? a.cols : a.rows;
  const uint64_t kb = op.transb == CUBLAS_OP_N ? b.rows : b.cols;
  const uint64_t n = op.transb == CUBLAS_OP_N ? b.cols : b.rows;
  if (k != kb || d.rows != m || d.cols != n || c.rows != m || c.cols != n)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* x : {&a, &b, &c, &d}) {
    if (x->ld < static_cast<int64_t>(x->rows) || x->batch != d.batch)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (x->order != CUBLASLT_ORDER_COL || x->type != d.type || x->type != op.scale_type)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool f64 =
      op.compute_type == CUBLAS_COMPUTE_64F || op.compute_type == CUBLAS_COMPUTE_64F_PEDANTIC;
  if (d.type != (f64 ? CUDA_R_64F : CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m == 0 || n == 0 || k == 0) return CUBLAS_STATUS_INVALID_VALUE;
  switch (op.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      break;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      if (op.aux_ld < static_cast<int64_t>(m)) return CUBLAS_STATUS_INVALID_VALUE;
      if (op.aux_ld % 8 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
T gelu(T x) {  // the tanh form
  const T inner =
      static_cast<T>(0.79788456080286535588) * (x + static_cast<T>(0.044715) * x * x * x);
  return static_cast<T>(0.5) * x * (1 + std::tanh(inner));
}

template <class T>
void matmul(const Operation& op, T alpha, const T* a, const Layout& la, const T* b,
            const Layout& lb, T beta, const T* c, const Layout& lc, T* d, const Layout& ld) {
  const auto m = static_cast<int64_t>(ld.rows), n = static_cast<int64_t>(ld.cols);
  const auto k = static_cast<int64_t>(op.transa == CUBLAS_OP_N ? la.cols : la.rows);
  for (int i = 0; i < ld.batch; ++i) {
    T* out = d + i * ld.stride;
    const T* in = c + i * lc.stride;
    if (in != out && beta != 0)
      for (int64_t column = 0; column < n; ++column)
        std::memmove(out + column * ld.ld, in + column * lc.ld, m * sizeof(T));
    gemm(op.transa, op.transb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha,
         a + i * la.stride, static_cast<int>(la.ld), b + i * lb.stride, static_cast<int>(lb.ld),
         beta, out, static_cast<int>(ld.ld));
    if (op.epilogue == CUBLASLT_EPILOGUE_DEFAULT) continue;
    const T* bias = static_cast<const T*>(op.bias) + i * op.bias_stride;
    T* aux = static_cast<T*>(op.aux) + i * op.aux_stride;
    for (int64_t column = 0; column < n; ++column) {
      for (int64_t row = 0; row < m; ++row) {
        T& y = out[column * ld.ld + row];
        if (has(op.epilogue, kBias)) y += bias[row];
        if (has(op.epilogue, kAux)) aux[column * op.aux_ld + row] = y;
        if (has(op.epilogue, kRelu)) y = y > 0 || y != y ? y : T{0};
        if (has(op.epilogue, kGelu)) y = gelu(y);
      }
    }
  }
}

// What an algorithm was chosen for: its workspace, and the alignments of A, B, C, D.
struct Algorithm {
  uint64_t workspace;
  uint64_t alignment[4];
};

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  openblas_set_num_threads(1);
  *handle = new cublasLtContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor,
                                        cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  *descriptor = new Operation{compute_type, scale_type};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  cudaDataType type = descriptor->scale_type;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return store(descriptor->compute_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return store(descriptor->scale_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      status = store(descriptor->pointer_mode, value, bytes);
      return descriptor->pointer_mode == CUBLASLT_POINTER_MODE_HOST ? status
                                                                    : CUBLAS_STATUS_NOT_SUPPORTED;
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return store(descriptor->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return store(descriptor->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return store(descriptor->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return store(descriptor->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return store(descriptor->bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return store(descriptor->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return store(descriptor->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return store(descriptor->aux_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      status = store(type, value, bytes);
      return type == descriptor->scale_type ? status : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = new Layout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return store(layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return store(layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return store(layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return store(layout->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return store(layout->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return store(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return store(layout->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return store(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return store(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                   value, bytes);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (asked < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = supported(*operation, *a, *b, *c, *d)) return status;
  Algorithm algorithm{std::min<uint64_t>(preference->workspace, kWorkspace), {}};
  std::copy_n(preference->alignment, 4, algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].wavesCount = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status =
          supported(*operation, *a_layout, *b_layout, *c_layout, *d_layout))
    return status;
  const void* const matrices[4] = {a, b, c, d};
  const Layout* const layouts[4] = {a_layout, b_layout, c_layout, d_layout};
  static const char* const names[4] = {"matmul A", "matmul B", "matmul C", "matmul D"};
  if (algo) {
    Algorithm algorithm;
    std::memcpy(&algorithm, algo, sizeof algorithm);
    if (workspace_bytes < algorithm.workspace) {
      report(cudaErrorInvalidValue,
             "cublasLtMatmul: the workspace is smaller than the algorithm's");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < 4; ++i) {
      if (reinterpret_cast<std::uintptr_t>(matrices[i]) % algorithm.alignment[i] == 0) continue;
      report(cudaErrorInvalidValue, std::string("cublasLtMatmul: ") + names[i] +
                                        " is not aligned as the preference said when the " +
                                        "algorithm was chosen (256 bytes unless it said less)");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  for (int i = 0; i < 4; ++i)
    if (!check_range(matrices[i], layout_bytes(*layouts[i]), names[i], handle->device))
      return CUBLAS_STATUS_EXECUTION_FAILED;
  const Operation op = *operation;
  const std::size_t element = element_size(d_layout->type);
  if (has(op.epilogue, kBias) &&
      !check_range(op.bias, (d_layout->rows + (d_layout->batch - 1) * op.bias_stride) * element,
                   "matmul bias", handle->device))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (has(op.epilogue, kAux)) {
    if (reinterpret_cast<std::uintptr_t>(op.aux) % 16 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    Layout aux = *d_layout;
    aux.ld = op.aux_ld;
    aux.stride = op.aux_stride;
    if (!check_range(op.aux, layout_bytes(aux), "matmul aux", handle->device))
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (workspace_bytes > 0 &&
      !check_range(workspace, workspace_bytes, "matmul workspace", handle->device))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (stream_device(stream) != handle->device) return CUBLAS_STATUS_INVALID_VALUE;

  const auto queue = [&](auto tag) {
    using T = decltype(tag);
    return enqueue_host(
        stream, "matmul",
        [op, a, b, c, d, la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout,
         first = *static_cast<const T*>(alpha), second = *static_cast<const T*>(beta)] {
          matmul<T>(op, first, static_cast<const T*>(a), la, static_cast<const T*>(b), lb, second,
                    static_cast<const T*>(c), lc, static_cast<T*>(d), ld);
        });
  };
  const cudaError_t error = d_layout->type == CUDA_R_64F ? queue(double{}) : queue(float{});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
