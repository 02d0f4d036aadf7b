// Calls of cuBLAS, cuBLASLt and cuSPARSE that read outside of their matrices, or that the real
// libraries refuse.

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusparse.h>

#include "selftest.h"

namespace selftest {
namespace {

void must(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Seen{cublasGetStatusName(status)};
}
void must(cusparseStatus_t status) {
  if (status != CUSPARSE_STATUS_SUCCESS) throw Seen{cusparseGetErrorName(status)};
}

void product(int m, int n, int k, int lda) {
  cublasHandle_t handle = nullptr;
  must(cublasCreate(&handle));
  const Array a(6), b(12), c(8);
  const float one = 1, zero = 0;
  must(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a.read(), lda, b.read(), k,
                   &zero, c.get(), m));
}
PLANTED(leading_dimension_too_small, "emulation") { product(2, 4, 3, 1); }
PLANTED(matrix_outside_its_allocation, "emulation") { product(2, 4, 3, 3); }

PLANTED(handle_of_another_device, "emulation") {
  lipgrad_emulation::config().devices = 2;
  cublasHandle_t handle = nullptr;
  must(cublasCreate(&handle));
  selftest::must(cudaSetDevice(1), "cudaSetDevice");
  const Array x(4), y(4);
  const float one = 1;
  must(cublasSaxpy(handle, 4, &one, x.read(), 1, y.get(), 1));
}

// D = A B with a bias: (8, 4) = (8, 8) (8, 4)
void biased_product(int offset, std::size_t workspace_bytes, cublasLtEpilogue_t epilogue,
                    std::int64_t aux_ld) {
  const Array a(80), b(32), d(32), bias(8), aux(64), workspace(1024);
  cublasLtHandle_t handle = nullptr;
  must(cublasLtCreate(&handle));
  cublasLtMatmulDesc_t operation = nullptr;
  must(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    must(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get());
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.get());
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
  cublasLtMatrixLayout_t square = nullptr, wide = nullptr;
  must(cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, 8, 8, 8));
  must(cublasLtMatrixLayoutCreate(&wide, CUDA_R_32F, 8, 4, 8));
  cublasLtMatmulPreference_t preference = nullptr;
  must(cublasLtMatmulPreferenceCreate(&preference));
  const std::size_t most = 4096;
  must(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &most, sizeof most));
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  must(cublasLtMatmulAlgoGetHeuristic(handle, operation, square, wide, wide, wide, preference, 1,
                                      &result, &found));
  const float one = 1, zero = 0;
  must(cublasLtMatmul(handle, operation, &one, a.read() + offset, square, b.read(), wide, &zero,
                      d.read(), wide, d.get(), wide, &result.algo, workspace.get(), workspace_bytes,
                      nullptr));
  selftest::must(cudaDeviceSynchronize(), "synchronize");
}
PLANTED(pointer_less_aligned_than_promised, "emulation") {
  biased_product(4, 4096, CUBLASLT_EPILOGUE_BIAS, 8);
}
PLANTED(workspace_smaller_than_asked_for, "emulation") {
  biased_product(0, 0, CUBLASLT_EPILOGUE_BIAS, 8);
}
PLANTED(auxiliary_rows_not_by_eight, "emulation") {
  biased_product(0, 4096, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 12);
}
PLANTED(correct_biased_product, "") { biased_product(0, 4096, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 8); }

// C = op(A) B with A of (2, 2).
void sparse_product(const std::vector<int>& offsets, const std::vector<int>& columns,
                    cusparseOperation_t operation, bool workspace) {
  cusparseHandle_t handle = nullptr;
  must(cusparseCreate(&handle));
  int* indices = nullptr;
  selftest::must(cudaMalloc(&indices, 5 * sizeof(int)), "cudaMalloc");
  selftest::must(cudaMemcpy(indices, offsets.data(), 12, cudaMemcpyHostToDevice), "cudaMemcpy");
  selftest::must(cudaMemcpy(indices + 3, columns.data(), 8, cudaMemcpyHostToDevice), "cudaMemcpy");
  const Array values(count_up(2)), b(count_up(8)), c(8), buffer(1024);
  cusparseConstSpMatDescr_t sparse = nullptr;
  cusparseConstDnMatDescr_t right = nullptr;
  cusparseDnMatDescr_t result = nullptr;
  must(cusparseCreateConstCsr(&sparse, 2, 2, 2, indices, indices + 3, values.read(),
                              CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                              CUDA_R_32F));
  must(cusparseCreateConstDnMat(&right, 2, 4, 4, b.read(), CUDA_R_32F, CUSPARSE_ORDER_ROW));
  must(cusparseCreateDnMat(&result, 2, 4, 4, c.get(), CUDA_R_32F, CUSPARSE_ORDER_ROW));
  const float one = 1, zero = 0;
  must(cusparseSpMM(handle, operation, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, sparse, right, &zero,
                    result, CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG3,
                    workspace ? buffer.get() : nullptr));
  selftest::must(cudaDeviceSynchronize(), "synchronize");
  check_values(c, {1, 2, 3, 4, 10, 12, 14, 16});
}
constexpr auto plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
PLANTED(sparse_column_out_of_range, "emulation") { sparse_product({0, 1, 2}, {0, 2}, plain, true); }
PLANTED(sparse_offsets_that_fall, "emulation") { sparse_product({0, 2, 1}, {0, 1}, plain, true); }
PLANTED(sparse_product_without_workspace, "emulation") {
  sparse_product({0, 1, 2}, {0, 1}, plain, false);
}
PLANTED(transposed_by_the_deterministic_algorithm, "emulation") {
  sparse_product({0, 1, 2}, {0, 1}, CUSPARSE_OPERATION_TRANSPOSE, true);
}
PLANTED(correct_sparse_product, "") { sparse_product({0, 1, 2}, {0, 1}, plain, true); }

}  // namespace
}  // namespace selftest
