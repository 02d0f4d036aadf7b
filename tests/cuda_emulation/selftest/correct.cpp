// Correct programs, which every layer must let pass, in every order and lazily.

#include "selftest.h"

namespace selftest {
namespace {

using lipgrad::cuda::block_reduce;
using lipgrad::cuda::Sum;

__global__ void transpose(const float* x, float* y, int rows, int cols) {
  LIPGRAD_SHARED(float, tile, [32][33]);
  const int col = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  for (int i = static_cast<int>(threadIdx.y); i < 32; i += 8) {
    const int row = static_cast<int>(blockIdx.y) * 32 + i;
    if (row < rows && col < cols) tile[i][threadIdx.x] = x[row * cols + col];
  }
  __syncthreads();
  const int to_col = static_cast<int>(blockIdx.y) * 32 + static_cast<int>(threadIdx.x);
  for (int i = static_cast<int>(threadIdx.y); i < 32; i += 8) {
    const int to_row = static_cast<int>(blockIdx.x) * 32 + i;
    if (to_row < cols && to_col < rows) y[to_row * rows + to_col] = tile[threadIdx.x][i];
  }
}
PLANTED(correct_transpose, "") {
  constexpr int rows = 37, cols = 41;
  const std::vector<float> values = count_up(rows * cols);
  const Array x(values), y(rows * cols);
  run(transpose, dim3(2, 2), dim3(32, 8), x.read(), y.get(), rows, cols);
  std::vector<float> expected(rows * cols);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < cols; ++c) expected[c * rows + r] = values[r * cols + c];
  check_values(y, expected);
}

// Twice, so that the second call reuses the first one's shared memory.
__global__ void sums(const float* x, float* y) {
  LIPGRAD_DYNAMIC_SHARED(float, buffer);
  buffer[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float once = block_reduce<96>(buffer[95 - threadIdx.x], Sum{}, 0.0f);
  const float twice = block_reduce<96>(2 * buffer[threadIdx.x], Sum{}, 0.0f);
  if (threadIdx.x == 0) y[blockIdx.x] = once + twice;
}
PLANTED(correct_block_sums, "") {
  const Array x(count_up(96)), y(5);
  cudaLaunchConfig_t config{};
  config.gridDim = 5;
  config.blockDim = 96;
  config.dynamicSmemBytes = 96 * sizeof(float);
  must(cudaLaunchKernelEx(&config, sums, x.read(), y.get()), "launch");
  check_values(y, std::vector<float>(5, 3 * 96 * 97 / 2));
}

__global__ void votes(unsigned* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned odd = __ballot_sync(kAllLanes, lane % 2);
  const unsigned same = __match_any_sync(kAllLanes, lane / 8);
  const int total = __reduce_add_sync(kAllLanes, lane);
  const float up = __shfl_up_sync(kAllLanes, static_cast<float>(lane), 1, 8);
  const bool good = odd == 0xaaaaaaaau && same == 0xffu << (lane / 8 * 8) && total == 496 &&
                    up == (lane % 8 ? lane - 1 : lane) && __any_sync(kAllLanes, lane == 3) &&
                    !__all_sync(kAllLanes, lane == 3) && __syncthreads_count(lane == 0) == 2;
  if (good) atomicAdd(out, 1u);
}
PLANTED(correct_votes_and_atomics, "") {
  unsigned* count = nullptr;
  unsigned host = 0;
  must(cudaMalloc(&count, sizeof host), "cudaMalloc");
  must(cudaMemset(count, 0, sizeof host), "cudaMemset");
  run(votes, 3, 64, count);
  must(cudaMemcpy(&host, count, sizeof host, cudaMemcpyDeviceToHost), "cudaMemcpy");
  must(cudaFree(count), "cudaFree");
  if (host != 3 * 64) throw Seen{"wrong value " + std::to_string(host)};
}

PLANTED(correct_streams_and_events, "") {
  const Array x(count_up(64)), middle(64), y(64);
  const OwnStream first, second;
  cudaEvent_t done = nullptr;
  must(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
  queue(first.get(), copy_kernel, 1, 64, x.read(), middle.get(), 64);
  must(cudaEventRecord(done, first.get()), "cudaEventRecord");
  must(cudaStreamWaitEvent(second.get(), done), "cudaStreamWaitEvent");
  queue(second.get(), copy_kernel, 1, 64, middle.read(), y.get(), 64);
  must(cudaStreamSynchronize(second.get()), "cudaStreamSynchronize");
  check_values(y, count_up(64));
  cudaEventDestroy(done);
}

__global__ void increment(float* x) { x[threadIdx.x] += 1; }
PLANTED(correct_graph, "") {
  const Array x(count_up(64));
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "begin");
  queue(stream.get(), increment, 1, 64, x.get());
  must(cudaStreamEndCapture(stream.get(), &graph), "end");
  check_values(x, count_up(64));  // nothing has run
  must(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 3; ++i) must(cudaGraphLaunch(executable, stream.get()), "cudaGraphLaunch");
  must(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  std::vector<float> expected = count_up(64);
  for (float& value : expected) value += 3;
  check_values(x, expected);
  must(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  must(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

// Beyond 2^32 elements, of which a few are touched.
__global__ void touch(unsigned char* x, std::int64_t n) {
  for (std::int64_t i = lipgrad::cuda::thread_index() << 31; i < n; i += std::int64_t{4} << 31)
    x[i] = static_cast<unsigned char>(i >> 31);
}
PLANTED(correct_huge_array, "") {
  constexpr std::int64_t n = std::int64_t{5} << 31;
  unsigned char* x = nullptr;
  must(cudaMalloc(&x, n), "cudaMalloc");
  run(touch, 1, 4, x, n);
  unsigned char last = 0;
  must(cudaMemcpy(&last, x + (std::int64_t{4} << 31), 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
  must(cudaFree(x), "cudaFree");
  if (last != 4) throw Seen{"wrong value " + std::to_string(last)};
}

PLANTED(correct_copies_between_devices, "") {
  lipgrad_emulation::config().devices = 2;
  const Array x(count_up(64));
  must(cudaSetDevice(1), "cudaSetDevice");
  const Array y(64);
  must(cudaMemcpy(y.get(), x.read(), 256, cudaMemcpyDeviceToDevice), "cudaMemcpy");
  check_values(y, count_up(64));
  must(cudaSetDevice(0), "cudaSetDevice");
}

}  // namespace
}  // namespace selftest
