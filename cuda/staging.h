#pragma once

// Private to cuda/: pinned memory through which host memory is copied, so that copies neither wait
// nor hold up the stream.

#include <array>
#include <cstdint>

#include <cuda_runtime.h>

namespace lipgrad::cuda {

struct Context;

class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Returns once `from` has been read; the copy to the device happens in stream order.
  void upload(cudaStream_t stream, void* to, const void* from, std::int64_t bytes);
  // Returns once `to` is written.
  void download(cudaStream_t stream, void* to, const void* from, std::int64_t bytes);

 private:
  static constexpr int slots = 4;
  static constexpr std::int64_t slot_bytes = 4 << 20;
  struct Slot {
    char* memory = nullptr;
    cudaEvent_t done = nullptr;  // when the copy that uses the slot has run
  };
  Slot& next();

  std::array<Slot, slots> slots_;
  int next_ = 0;
};

}  // namespace lipgrad::cuda
