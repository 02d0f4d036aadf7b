#include "staging.h"

#include <algorithm>
#include <cstring>

#include "context.h"
#include "recording.h"

namespace lipgrad::cuda {

Staging::Staging() {
  for (Slot& slot : slots_) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, slot_bytes), "cudaMallocHost");
    slot.memory = static_cast<char*>(memory);
    check(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming), "cudaEventCreate");
  }
}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    cudaEventDestroy(slot.done);
    cudaFreeHost(slot.memory);
  }
}

// A slot whose last copy has run.
Staging::Slot& Staging::next() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots;
  check(cudaEventSynchronize(slot.done), "cudaEventSynchronize");
  return slot;
}

void Staging::upload(cudaStream_t stream, void* to, const void* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += slot_bytes) {
    const std::int64_t part = std::min(slot_bytes, bytes - at);
    Slot& slot = next();
    std::memcpy(slot.memory, static_cast<const char*>(from) + at, part);
    check(cudaMemcpyAsync(static_cast<char*>(to) + at, slot.memory, part, cudaMemcpyHostToDevice,
                          stream),
          "cudaMemcpyAsync");
    check(cudaEventRecord(slot.done, stream), "cudaEventRecord");
  }
}

void Staging::download(cudaStream_t stream, void* to, const void* from, std::int64_t bytes) {
  // While one slot is emptied on the host the next is filled.
  struct Part {
    Slot* slot = nullptr;
    std::int64_t at = 0, bytes = 0;
  } before;
  const auto finish = [&](const Part& part) {
    if (!part.slot) return;
    check(cudaEventSynchronize(part.slot->done), "cudaEventSynchronize");
    std::memcpy(static_cast<char*>(to) + part.at, part.slot->memory, part.bytes);
  };
  for (std::int64_t at = 0; at < bytes; at += slot_bytes) {
    const Part part{&next(), at, std::min(slot_bytes, bytes - at)};
    check(cudaMemcpyAsync(part.slot->memory, static_cast<const char*>(from) + at, part.bytes,
                          cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    check(cudaEventRecord(part.slot->done, stream), "cudaEventRecord");
    finish(before);
    before = part;
  }
  finish(before);
}

void upload(void* to, const void* from, std::int64_t bytes) {
  Context& c = context();
  if (bytes == 0) return;
  if (c.recording) return c.recording->upload(to, from, bytes);
  const std::lock_guard lock(c.mutex);
  c.staging->upload(c.stream, to, from, bytes);
}

void download(void* to, const void* from, std::int64_t bytes) {
  Context& c = context();
  if (!c.recording) {
    const std::lock_guard lock(c.mutex);
    c.staging->download(c.stream, to, from, bytes);
  }
  synchronize(c);
}

}  // namespace lipgrad::cuda
