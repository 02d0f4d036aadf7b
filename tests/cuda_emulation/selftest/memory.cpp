// Memory that is not there, not initialised, freed, or somebody else's.

#include "selftest.h"

namespace selftest {
namespace {

__global__ void add_to_shared(const float* x, float* y) {
  LIPGRAD_SHARED(float, s, [64]);
  s[threadIdx.x] += x[threadIdx.x];
  y[threadIdx.x] = s[threadIdx.x];
}
PLANTED(uninitialised_shared_memory, "value") {
  const Array x(count_up(64)), y(64);
  run(add_to_shared, 1, 64, x.read(), y.get());
  check_values(y, count_up(64));
}

__global__ void add_to_device(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }
PLANTED(uninitialised_device_memory, "value") {
  const Array x(count_up(64)), y(64);
  run(add_to_device, 1, 64, x.read(), y.get());
  check_values(y, count_up(64));
}

PLANTED(host_pointer_to_kernel, "emulation") {
  const std::vector<float> x = count_up(64);
  const Array y(64);
  run(copy_kernel, 1, 64, x.data(), y.get(), 64);
}
PLANTED(pointer_of_another_device, "emulation") {
  lipgrad_emulation::config().devices = 2;
  const Array x(count_up(64));
  must(cudaSetDevice(1), "cudaSetDevice");
  const Array y(64);
  run(copy_kernel, 1, 64, x.read(), y.get(), 64);
}
PLANTED(host_reads_device_memory, "fault") {
  const Array x(count_up(64));
  if (x.read()[3] != 4) throw Seen{"wrong value"};
}
PLANTED(freed_memory_to_kernel, "emulation") {
  const Array y(64), keep(64);
  float* freed = nullptr;
  must(cudaMalloc(&freed, 256), "cudaMalloc");
  must(cudaFree(freed), "cudaFree");
  run(copy_kernel, 1, 64, static_cast<const float*>(freed), y.get(), 64);
}
PLANTED(freed_twice, "emulation") {
  float* p = nullptr;
  must(cudaMalloc(&p, 256), "cudaMalloc");
  must(cudaFree(p), "cudaFree");
  must(cudaFree(p), "cudaFree");
}
PLANTED(copy_too_long, "emulation") {
  const Array x(64), y(64);
  must(cudaMemcpy(y.get(), x.read(), 260, cudaMemcpyDeviceToDevice), "cudaMemcpy");
}
PLANTED(copy_2d_too_long, "emulation") {
  const Array x(64), y(64);
  must(cudaMemcpy2DAsync(y.get(), 32, x.read(), 36, 32, 8, cudaMemcpyDeviceToDevice, nullptr),
       "cudaMemcpy2DAsync");
}
PLANTED(copy_of_wrong_kind, "emulation") {
  const Array x(64);
  std::vector<float> host(64);
  must(cudaMemcpy(host.data(), x.read(), 256, cudaMemcpyHostToDevice), "cudaMemcpy");
}
PLANTED(memset_too_long, "emulation") {
  const Array x(64);
  must(cudaMemset(x.get(), 0, 260), "cudaMemset");
}
PLANTED(out_of_memory, "emulation") {
  lipgrad_emulation::set_memory_limit(1 << 20);
  const Array x(1 << 18);
  const Array y(1);
}

}  // namespace
}  // namespace selftest
