#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What this program can do with CUDA devices, for reports and options.
namespace lipgrad {

struct CudaDevice {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::int64_t memory = 0;  // bytes
};

struct CudaStatus {
  bool built = false;           // this build has the CUDA backend
  bool emulated = false;        // it runs on the CPU, to be tested: see LIPGRAD_CUDA in README.md
  int runtime = 0, driver = 0;  // versions, 13000 for 13.0; 0: not there
  // Why no device can be used, in words that fit behind "but": "this machine has no CUDA driver";
  // empty when there is one.
  std::string problem;
  std::vector<CudaDevice> devices;
};

// Looked up at the first call.
const CudaStatus& cuda_status();

// How matrix products of f32 are computed on CUDA devices.
enum class MatmulPrecision {
  exact,  // in f32
  tf32,   // on tensor cores, the factors rounded to 10 bits of mantissa: faster
};
// For products from now on, of all threads. `exact` unless set.
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

}  // namespace lipgrad
