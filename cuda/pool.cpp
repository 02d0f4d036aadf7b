#include "pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include <lipgrad/core/check.h>

#include "context.h"

namespace lipgrad::cuda {
namespace {

// Checkers of memory see nothing of a cache's blocks: the emulation, and whoever sets
// LIPGRAD_CUDA_CACHE=0 for compute-sanitizer, give every block back at once.
bool caches() {
  static const bool on = [] {
    const char* set = std::getenv("LIPGRAD_CUDA_CACHE");
#ifdef LIPGRAD_CUDA_EMULATED
    return set && std::string(set) == "1";
#else
    return !set || std::string(set) != "0";
#endif
  }();
  return on;
}

// Rounds up to 512 bytes, and above 8 KiB to a sixteenth of the next lower power of two.
std::int64_t block_size(std::int64_t bytes) {
  if (!caches()) return std::max<std::int64_t>(bytes, 1);
  const std::int64_t step = std::max<std::int64_t>(
      512, static_cast<std::int64_t>(
               std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1)))) /
               16);
  return std::max<std::int64_t>((bytes + step - 1) / step, 1) * step;
}

}  // namespace

void* Pool::take(std::int64_t bytes) {
  const std::int64_t block = block_size(bytes);
  const std::lock_guard lock(mutex_);
  void* data = nullptr;
  if (const auto found = free_.find(block); found != free_.end() && !found->second.empty()) {
    data = found->second.back();
    found->second.pop_back();
    counters_.cached -= block;
  } else {
    cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(block));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      release_locked();
      error = cudaMalloc(&data, static_cast<std::size_t>(block));
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      std::size_t unused = 0, total = 0;
      cudaMemGetInfo(&unused, &total);
      fail("cuda:{}: out of memory: {} bytes asked for; {} of the device's {} bytes are free, {}",
           device_, bytes, unused, total,
           memory::describe({DeviceKind::cuda, static_cast<std::int16_t>(device_)}, counters_));
    }
    check(error, "cudaMalloc");
    ++counters_.allocations;
  }
  counters_.live += bytes;
  counters_.peak = std::max(counters_.peak, counters_.live);
  return data;
}

void Pool::give(void* data, std::int64_t bytes) noexcept {
  const std::int64_t block = block_size(bytes);
  const std::lock_guard lock(mutex_);
  counters_.live -= bytes;
  if (caches() || kept_) {
    try {
      if (caches()) {
        free_[block].push_back(data);
        counters_.cached += block;
      } else {
        kept_->push_back(data);
      }
      return;
    } catch (const std::bad_alloc&) {  // then it goes back now
    }
  }
  cudaFree(data);
}

void Pool::keep(std::vector<void*>* kept) {
  const std::lock_guard lock(mutex_);
  kept_ = kept;
}

void Pool::release() {
  const std::lock_guard lock(mutex_);
  release_locked();
}

void Pool::release_locked() {
  for (auto& [block, list] : free_)
    for (void* data : list) cudaFree(data);
  free_.clear();
  counters_.cached = 0;
}

memory::Counters Pool::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Pool::reset_peak() {
  const std::lock_guard lock(mutex_);
  counters_.peak = counters_.live;
}

void* allocate_scratch(std::int64_t bytes) { return context().pool->take(bytes); }
void free_scratch(void* data, std::int64_t bytes) noexcept { context().pool->give(data, bytes); }

}  // namespace lipgrad::cuda
