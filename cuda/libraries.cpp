#include "libraries.h"

#include <lipgrad/core/check.h>

namespace lipgrad::cuda {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("cuda: {}: {}", what, cublasGetStatusString(status));
}

void check(cusparseStatus_t status, const char* what) {
  if (status != CUSPARSE_STATUS_SUCCESS) fail("cuda: {}: {}", what, cusparseGetErrorString(status));
}

Libraries::Libraries(Context& context) {
  check(cublasCreate(&blas), "cublasCreate");
  check(cublasSetStream(blas, context.stream), "cublasSetStream");
  check(cudaMalloc(&workspace, workspace_bytes), "cudaMalloc");
  check(cublasSetWorkspace(blas, workspace, workspace_bytes), "cublasSetWorkspace");
  check(cublasLtCreate(&blas_lt), "cublasLtCreate");
  check(cusparseCreate(&sparse), "cusparseCreate");
  check(cusparseSetStream(sparse, context.stream), "cusparseSetStream");
}

Libraries::~Libraries() {
  cusparseDestroy(sparse);
  cublasLtDestroy(blas_lt);
  cublasDestroy(blas);
  cudaFree(workspace);
}

Libraries& libraries(Context& context) {
  if (!context.libraries) context.libraries = std::make_unique<Libraries>(context);
  return *context.libraries;
}

}  // namespace lipgrad::cuda
