#include <cuda_runtime.h>

#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/runtime.h>

namespace lipgrad::cuda {

CudaStatus query_status() {
  CudaStatus status;
  status.built = true;
#ifdef LIPGRAD_CUDA_EMULATED
  status.emulated = true;
#endif
  cudaRuntimeGetVersion(&status.runtime);
  cudaDriverGetVersion(&status.driver);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    status.problem = status.driver == 0 ? "this machine has no CUDA driver"
                                        : "the CUDA driver finds no device that it can use";
    if (status.driver != 0 && error != cudaSuccess)
      status.problem += std::string(" (") + cudaGetErrorString(error) + ")";
    return status;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    status.devices.push_back({properties.name, properties.major, properties.minor,
                              properties.multiProcessorCount,
                              static_cast<std::int64_t>(properties.totalGlobalMem)});
  }
  return status;
}

}  // namespace lipgrad::cuda
