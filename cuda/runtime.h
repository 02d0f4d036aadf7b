#pragma once

// C++17, private to cuda/. The calling thread's current device: its one compute stream, scratch
// memory, small copies, and faults that kernels report.

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace lipgrad::cuda {

[[noreturn]] void throw_error(cudaError_t error, const char* what);
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw_error(error, what);
}

// Everything a device computes runs in this stream, in order.
cudaStream_t stream();
// Multiprocessors of the current device: for grids that loop.
int multiprocessors();

// Device memory of a pool, to be used in stream order: freed memory is handed out again at once,
// since whatever still reads it was queued before.
void* allocate_scratch(std::int64_t bytes);
void free_scratch(void* data, std::int64_t bytes) noexcept;

// n elements of scratch memory for the kernels launched while it is in scope.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t n)
      : bytes_(n * static_cast<std::int64_t>(sizeof(T))),
        data_(static_cast<T*>(allocate_scratch(bytes_))) {}
  ~Scratch() { free_scratch(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() const { return data_; }

 private:
  std::int64_t bytes_;
  T* data_;
};

// Copies host memory to the device in stream order, by way of pinned memory: `from` may change as
// soon as it returns, and nothing waits.
void upload(void* to, const void* from, std::int64_t bytes);
// Copies device memory to the host and waits for it.
void download(void* to, const void* from, std::int64_t bytes);

// What a kernel found wrong with its input. Kernels leave such elements out and go on; the next
// synchronisation with the host (item(), a copy to the CPU) throws an Error that tells.
enum class Fault : int { index, label, row };
inline constexpr int kFaults = 3;
struct Faults {
  unsigned long long position[kFaults];  // the lowest position at fault; all ones: none
  unsigned long long limit[kFaults];     // what the value there should have been below
};
// In device memory.
Faults* faults();

}  // namespace lipgrad::cuda
