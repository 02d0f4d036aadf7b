#pragma once

// Private to cuda/: the memory of one device.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <lipgrad/core/memory.h>

namespace lipgrad::cuda {

// Blocks of device memory, kept for reuse by size. Everything runs in one stream, so that a block
// can be handed out again as soon as it is given back: what used it was queued before what will.
class Pool {
 public:
  explicit Pool(int device) : device_(device) {}

  // Error when memory runs out, with the counters and the largest saved tensors.
  void* take(std::int64_t bytes);
  void give(void* data, std::int64_t bytes) noexcept;
  // Until keep(nullptr), memory given back that is not cached goes here instead of to the driver:
  // for work that is recorded now and runs later.
  void keep(std::vector<void*>* kept);
  // Hands unused blocks back to the driver.
  void release();

  memory::Counters counters() const;
  void reset_peak();

 private:
  void release_locked();

  const int device_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::vector<void*>> free_;  // by size of block
  std::vector<void*>* kept_ = nullptr;
  memory::Counters counters_;
};

}  // namespace lipgrad::cuda
