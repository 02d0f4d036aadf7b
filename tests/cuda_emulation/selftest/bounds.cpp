// Accesses outside of what a thread may touch.

#include <climits>

#include "selftest.h"

namespace selftest {
namespace {

__global__ void copy_without_guard(const float* x, float* y) {
  const std::int64_t i = lipgrad::cuda::thread_index();
  y[i] = x[i];
}
PLANTED(missing_bounds_guard, "address") {
  const Array x(count_up(50)), y(50);
  run(copy_without_guard, 2, 32, x.read(), y.get());
}

__global__ void read_next(const float* x, float* y, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) y[i] = x[i + 1] * 0 + x[i];
}
PLANTED(read_past_the_end, "address") {
  const Array x(count_up(64)), y(64);
  run(read_next, 1, 64, x.read(), y.get(), 64);
}

__global__ void read_before(const float* x, float* y) {
  const int i = static_cast<int>(threadIdx.x);
  y[i] = x[i - 1] * 0 + x[i];
}
PLANTED(read_before_the_beginning, "address") {
  const Array x(count_up(64)), y(64);
  run(read_before, 1, 64, x.read(), y.get());
}

__global__ void column_of_tile(const float* x, float* y) {
  LIPGRAD_SHARED(float, tile, [32][32]);
  float(*row)[32] = tile;
  for (int i = 0; i < 32; ++i) row[i][threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = row[threadIdx.x + 1][0] * 0 + row[threadIdx.x][0];
}
PLANTED(shared_memory_out_of_bounds, "address") {
  const Array x(count_up(32)), y(32);
  run(column_of_tile, 1, 32, x.read(), y.get());
}

__global__ void reverse_in_dynamic(const float* x, float* y, int n) {
  LIPGRAD_DYNAMIC_SHARED(float, s);
  s[n - 1 - static_cast<int>(threadIdx.x)] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
PLANTED(dynamic_shared_memory_too_small, "address") {
  const Array x(count_up(64)), y(64);
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 64;
  config.dynamicSmemBytes = 63 * sizeof(float);
  must(cudaLaunchKernelEx(&config, reverse_in_dynamic, x.read(), y.get(), 64), "launch");
}

// The pointer check does not look into structs.
struct View {
  const float* data;
};
__global__ void copy_view(View x, float* y) { y[threadIdx.x] = x.data[threadIdx.x]; }
PLANTED(freed_memory_in_a_struct, "address") {
  const Array y(32);
  float* freed = nullptr;
  must(cudaMalloc(&freed, 32 * sizeof(float)), "cudaMalloc");
  must(cudaFree(freed), "cudaFree");
  run(copy_view, 1, 32, View{freed}, y.get());
}

__global__ void copy_by_four(const float* x, float* y) {
  reinterpret_cast<float4*>(y)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
}
PLANTED(misaligned_float4, "undefined") {
  const Array x(count_up(64)), y(64);
  run(copy_by_four, 1, 8, x.read() + 1, y.get());
}

__global__ void index_in_32_bits(const float* x, float* y, int rows) {
  const int i = rows * 65536 + static_cast<int>(threadIdx.x);
  if (i >= 0 && i < 64) y[i] = x[i];
}
PLANTED(overflow_of_an_index, "undefined") {
  const Array x(count_up(64)), y(64);
  run(index_in_32_bits, 1, 32, x.read(), y.get(), 70000);
}

__global__ void narrow_local(const float* x, float* y) {
  float local[4];
  float* p = local;
  for (int i = 0; i < 4; ++i) p[i] = x[i];
  y[threadIdx.x] = p[threadIdx.x];
}
PLANTED(local_array_out_of_bounds, "undefined") {
  const Array x(count_up(32)), y(32);
  run(narrow_local, 1, 32, x.read(), y.get());
}

}  // namespace
}  // namespace selftest
