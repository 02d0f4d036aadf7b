#pragma once

// Planted bugs: each is a function that does something wrong with the emulation, and names the
// layers that must see it.

#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "cuda/reduce.cuh"

namespace selftest {

using lipgrad::cuda::kAllLanes;

// Thrown when a bug shows: by a wrong value, or by an error of the API.
struct Seen {
  std::string how;
};

struct Bug {
  const char* name;
  // Words: "emulation" (its own diagnosis), "value" (in one of the orders of threads), "lazy",
  // "fault", "address", "undefined", "thread"; "" for correct programs, which all must let pass.
  const char* seen_by;
  void (*run)();
};
std::vector<Bug>& bugs();
struct Registered {
  Registered(const char* name, const char* seen_by, void (*run)());
};
#define PLANTED(name, seen_by)                                               \
  static void name();                                                        \
  static const selftest::Registered registered_##name(#name, seen_by, name); \
  static void name()

// Throws Seen unless it succeeded.
void must(cudaError_t error, const char* what);

// n floats in device memory.
class Array {
 public:
  explicit Array(int n);
  explicit Array(const std::vector<float>& values);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  float* get() const { return data_; }
  const float* read() const { return data_; }
  std::vector<float> values() const;

 private:
  float* data_ = nullptr;
  int n_;
};

// 1, 2, ..., n
std::vector<float> count_up(int n);
// Throws Seen when the array differs from what it should hold.
void check_values(const Array& array, const std::vector<float>& expected);

// Launches on the legacy stream and waits.
template <class... P, class... A>
void run(void (*kernel)(P...), dim3 grid, dim3 block, A... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  must(cudaLaunchKernelEx(&config, kernel, args...), "launch");
  must(cudaDeviceSynchronize(), "synchronize");
}
template <class... P, class... A>
void queue(cudaStream_t stream, void (*kernel)(P...), dim3 grid, dim3 block, A... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  must(cudaLaunchKernelEx(&config, kernel, args...), "launch");
}

class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

__global__ inline void copy_kernel(const float* x, float* y, int n) {
  const std::int64_t i = lipgrad::cuda::thread_index();
  if (i < n) y[i] = x[i];
}

}  // namespace selftest
