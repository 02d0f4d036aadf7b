#include <algorithm>
#include <limits>
#include <mutex>

#include "context.h"
#include "libraries.h"
#include "runtime.h"
#include "spmm_paths.h"

namespace lipgrad::cuda {
namespace {

// Below this width a row of x is less than a few sectors, and the own kernel, which needs neither
// narrowed offsets nor a workspace, is as good.
constexpr std::int64_t least_features = 32;

template <class T>
constexpr cudaDataType type = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;

// Descriptors of operands, given back at the end of the scope.
struct Operands {
  cusparseConstSpMatDescr_t a = nullptr;
  cusparseConstDnMatDescr_t x = nullptr;
  cusparseDnMatDescr_t y = nullptr;

  Operands() = default;
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  ~Operands() {
    if (a) cusparseDestroySpMat(a);
    if (x) cusparseDestroyDnMat(x);
    if (y) cusparseDestroyDnMat(y);
  }
};

}  // namespace

bool fits_cusparse(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t features,
                   const std::int64_t* order, const void* values, std::int64_t ldx,
                   std::int64_t ldy) {
  constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();
  return values != nullptr && order == nullptr && features >= least_features && rows > 0 &&
         cols > 0 && nnz > 0 && (nnz - 1) / rows < cols &&
         std::max({rows, cols, nnz, features, ldx, ldy}) < limit;
}

template <class T>
bool spmm_cusparse(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t features,
                   const std::int64_t* offsets, const std::int32_t* columns, const T* values,
                   const T* x, std::int64_t ldx, T* y, std::int64_t ldy) {
  const Scratch<std::int32_t> narrowed(rows + 1);
  narrow(rows + 1, offsets, narrowed.get());
  Context& device = context();
  const std::lock_guard lock(device.mutex);
  const cusparseHandle_t handle = libraries(device).sparse;
  Operands operands;
  check(cusparseCreateConstCsr(&operands.a, rows, cols, nnz, narrowed.get(), columns, values,
                               CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                               type<T>),
        "cusparseCreateConstCsr");
  check(cusparseCreateConstDnMat(&operands.x, cols, features, ldx, x, type<T>, CUSPARSE_ORDER_ROW),
        "cusparseCreateConstDnMat");
  check(cusparseCreateDnMat(&operands.y, rows, features, ldy, y, type<T>, CUSPARSE_ORDER_ROW),
        "cusparseCreateDnMat");
  const T one = 1, zero = 0;
  std::size_t bytes = 0;
  const cusparseStatus_t status = cusparseSpMM_bufferSize(
      handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, operands.a,
      operands.x, &zero, operands.y, type<T>, CUSPARSE_SPMM_CSR_ALG3, &bytes);
  if (status == CUSPARSE_STATUS_NOT_SUPPORTED) return false;
  check(status, "cusparseSpMM_bufferSize");
  const Scratch<std::uint8_t> workspace(static_cast<std::int64_t>(bytes));
  check(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE,
                     &one, operands.a, operands.x, &zero, operands.y, type<T>,
                     CUSPARSE_SPMM_CSR_ALG3, workspace.get()),
        "cusparseSpMM");
  return true;
}

#define INSTANTIATE(T)                                                                      \
  template bool spmm_cusparse(std::int64_t, std::int64_t, std::int64_t, std::int64_t,       \
                              const std::int64_t*, const std::int32_t*, const T*, const T*, \
                              std::int64_t, T*, std::int64_t);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
