#include <lipgrad/core/cuda_status.h>

#include <atomic>

#include <lipgrad/config.h>
#include <lipgrad/core/runtime.h>

namespace lipgrad {
namespace {

std::atomic<MatmulPrecision> precision{MatmulPrecision::exact};

}  // namespace

const CudaStatus& cuda_status() {
  static const CudaStatus status = [] {
    if constexpr (kWithCuda) {
      return cuda::query_status();
    } else {
      CudaStatus none;
      none.problem = "this build of lipgrad has no CUDA backend";
      return none;
    }
  }();
  return status;
}

void set_matmul_precision(MatmulPrecision p) { precision.store(p, std::memory_order_relaxed); }
MatmulPrecision matmul_precision() { return precision.load(std::memory_order_relaxed); }

}  // namespace lipgrad
