// Launches that a GPU refuses.

#include "selftest.h"

namespace selftest {
namespace {

__global__ void dynamic_kernel(float* y) {
  LIPGRAD_DYNAMIC_SHARED(float, s);
  s[threadIdx.x] = 1;
  y[threadIdx.x] = s[threadIdx.x];
}
void launch_with_shared(std::size_t bytes) {
  const Array y(32);
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 32;
  config.dynamicSmemBytes = bytes;
  must(cudaLaunchKernelEx(&config, dynamic_kernel, y.get()), "launch");
  must(cudaDeviceSynchronize(), "synchronize");
}

PLANTED(empty_grid, "emulation") {
  const Array x(count_up(64)), y(64);
  run(copy_kernel, 0, 64, x.read(), y.get(), 64);
}
PLANTED(block_too_large, "emulation") {
  const Array x(count_up(64)), y(64);
  run(copy_kernel, 1, 2048, x.read(), y.get(), 64);
}
PLANTED(grid_y_too_large, "emulation") {
  const Array x(count_up(64)), y(64);
  run(copy_kernel, dim3(1, 65536), 1, x.read(), y.get(), 64);
}
PLANTED(shared_memory_without_attribute, "emulation") { launch_with_shared(60000); }
PLANTED(attribute_too_large, "emulation") {
  must(cudaFuncSetAttribute(dynamic_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 240000),
       "cudaFuncSetAttribute");
}
PLANTED(attribute_of_another_device, "emulation") {
  lipgrad_emulation::config().devices = 2;
  must(cudaFuncSetAttribute(dynamic_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000),
       "cudaFuncSetAttribute");
  launch_with_shared(60000);
  must(cudaSetDevice(1), "cudaSetDevice");
  launch_with_shared(60000);
}

__global__ void large_static(float* y) {
  LIPGRAD_SHARED(float, s, [13000]);
  s[threadIdx.x] = 1;
  y[threadIdx.x] = s[threadIdx.x];
}
PLANTED(static_shared_memory_over_48_kib, "emulation") {
  const Array y(32);
  run(large_static, 1, 32, y.get());
}

PLANTED(stream_of_another_device, "emulation") {
  lipgrad_emulation::config().devices = 2;
  const Array x(count_up(64)), y(64);
  must(cudaSetDevice(1), "cudaSetDevice");
  const OwnStream stream;
  must(cudaSetDevice(0), "cudaSetDevice");
  queue(stream.get(), copy_kernel, 1, 64, x.read(), y.get(), 64);
}

}  // namespace
}  // namespace selftest
