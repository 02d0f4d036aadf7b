#pragma once

// Private to cuda/: what lipgrad keeps for each CUDA device.

#include <cstdint>
#include <memory>
#include <mutex>

#include <cuda_runtime.h>

#include "runtime.h"

namespace lipgrad::cuda {

class Pool;
class Staging;
class Recording;
struct Libraries;

// Made when a device is first used, and kept to the end of the program: tensors of static duration
// may outlive everything else.
struct Context {
  int index = 0;
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  Faults* faults = nullptr;       // in device memory
  Faults* host_faults = nullptr;  // pinned
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Staging> staging;
  std::unique_ptr<Libraries> libraries;  // cuBLAS, cuSPARSE; made when first used
  std::mutex mutex;                      // of `staging` and `libraries`
  Recording* recording = nullptr;        // while a CUDA graph is recorded
};

// Of the thread's current device.
Context& context();
// Of a device, which becomes the current one. Error when there is no such device.
Context& context(int index);

// Waits for all work of the device; then throws what kernels reported.
void synchronize(Context& context);

}  // namespace lipgrad::cuda
