#pragma once

// Private to cuda/: the handles of cuBLAS, cuBLASLt and cuSPARSE.

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusparse.h>

#include "context.h"

namespace lipgrad::cuda {

void check(cublasStatus_t status, const char* what);
void check(cusparseStatus_t status, const char* what);

// What cuBLASLt's choice of an algorithm for a linear layer depends on.
struct LinearProduct {
  std::int64_t rows, in, out;
  int epilogue;
  bool tf32;
  std::uint64_t alignment;  // of all pointers
  auto operator<=>(const LinearProduct&) const = default;
};

struct Libraries {
  static constexpr std::size_t workspace_bytes = 32 << 20;

  explicit Libraries(Context& context);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  cublasHandle_t blas = nullptr;
  cublasLtHandle_t blas_lt = nullptr;
  cusparseHandle_t sparse = nullptr;
  void* workspace = nullptr;  // of cuBLAS: with one of its own its results are repeatable
  // Those looked up so far; none where cuBLASLt has none.
  std::map<LinearProduct, std::optional<cublasLtMatmulAlgo_t>> linear_algorithms;
};

// Those of the current device; hold context().mutex while using them.
Libraries& libraries(Context& context);

}  // namespace lipgrad::cuda
