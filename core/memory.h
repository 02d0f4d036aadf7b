#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/core/device.h>

// Counters of tensor memory, for tests, benchmarks and out-of-memory messages.
namespace lipgrad::memory {

struct Counters {
  std::int64_t live = 0;         // bytes that tensors hold now
  std::int64_t peak = 0;         // most bytes held since the last reset_peak()
  std::int64_t cached = 0;       // bytes kept for reuse, held by no tensor
  std::int64_t allocations = 0;  // blocks asked of the operating system or driver since the start
};

Counters counters(Device device = cpu_device);
// Makes the peak the bytes that are live now.
void reset_peak(Device device = cpu_device);
// Gives cached blocks back to the operating system (those of other threads' small-block caches
// stay).
void release_cached(Device device = cpu_device);

// The counters in words, and the largest tensors that the recording tape keeps for its backward
// pass, with the ops that saved them. For messages.
std::string describe(Device device, const Counters& counters);

}  // namespace lipgrad::memory
