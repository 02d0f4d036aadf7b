#pragma once

// Private to cuda/: what belongs to one run of a step that is recorded as a CUDA graph.

#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "context.h"

namespace lipgrad::cuda {

// Pinned memory that the graph's copies to the device read, and device memory that is free once the
// graph has run.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Waits until the graph recorded with it before has run, then starts anew.
  void begin(Context& context);
  // Queues a copy to the device; `from` may change once it returns.
  void upload(void* to, const void* from, std::int64_t bytes);
  // Nothing more is recorded. launched: the graph is in the stream now.
  void end(bool launched);

 private:
  struct Chunk {
    char* memory;
    std::int64_t bytes;
  };
  static constexpr std::int64_t chunk_bytes = 1 << 20;
  void free_kept();

  Context* context_ = nullptr;
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;
  std::int64_t used_ = 0;
  std::vector<void*> kept_;
  cudaEvent_t done_ = nullptr;
};

}  // namespace lipgrad::cuda
