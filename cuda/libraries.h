#pragma once

// Private to cuda/: the handles of cuBLAS and cuSPARSE.

#include <cublas_v2.h>
#include <cusparse.h>

#include "context.h"

namespace lipgrad::cuda {

void check(cublasStatus_t status, const char* what);
void check(cusparseStatus_t status, const char* what);

struct Libraries {
  explicit Libraries(Context& context);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  cublasHandle_t blas = nullptr;
  cusparseHandle_t sparse = nullptr;
  void* workspace = nullptr;  // of cuBLAS: with one of its own its results are repeatable
};

// Those of the current device; hold context().mutex while using them.
Libraries& libraries(Context& context);

}  // namespace lipgrad::cuda
