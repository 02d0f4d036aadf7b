// cudaMemcpy, cudaMemset and their kin.

#include <cstring>
#include <string>
#include <vector>

#include "memory.h"
#include "state.h"
#include "streams.h"

namespace lipgrad_emulation {
namespace {

// `height` rows of `width` bytes; a plain copy has one row.
struct Copy {
  void* to;
  std::size_t to_pitch;
  const void* from;
  std::size_t from_pitch, width, height;

  std::size_t to_bytes() const { return (height - 1) * to_pitch + width; }
  std::size_t from_bytes() const { return (height - 1) * from_pitch + width; }
};

void run_copy(const Copy& c, bool from_device, bool to_device) {
  // It may have been queued or captured long ago.
  const auto inside = [](const void* p, std::size_t bytes) {
    const Allocation block = find_device_block(p);
    return block.begin && static_cast<const char*>(p) + bytes <= block.begin + block.bytes;
  };
  if ((to_device && !inside(c.to, c.to_bytes())) ||
      (from_device && !inside(c.from, c.from_bytes()))) {
    report_sticky(cudaErrorIllegalAddress, "cudaMemcpy: the memory was freed before the copy ran");
    return;
  }
  const DeviceAccess access;
  for (std::size_t row = 0; row < c.height; ++row)
    std::memcpy(static_cast<char*>(c.to) + row * c.to_pitch,
                static_cast<const char*>(c.from) + row * c.from_pitch, c.width);
}

bool check_side(const void* p, std::size_t bytes, bool device, const char* what) {
  return !device || check_range(p, bytes, what, find_device_block(p).device);
}

cudaError_t copy(const Copy& c, cudaMemcpyKind kind, const std::shared_ptr<Stream>& stream,
                 bool synchronous) {
  if (c.width == 0 || c.height == 0) return cudaSuccess;
  const bool to_device = is_device_pointer(c.to), from_device = is_device_pointer(c.from);
  if (kind == cudaMemcpyDefault)
    kind = static_cast<cudaMemcpyKind>((from_device ? 2 : 0) + (to_device ? 1 : 0));
  if (to_device != ((kind & 1) != 0) || from_device != ((kind & 2) != 0))
    return report(cudaErrorInvalidValue, "cudaMemcpy: kind does not match the pointers");
  if (c.to_pitch < c.width || c.from_pitch < c.width) return fail(cudaErrorInvalidPitchValue);
  if (!check_side(c.to, c.to_bytes(), to_device, "cudaMemcpy to") ||
      !check_side(c.from, c.from_bytes(), from_device, "cudaMemcpy from"))
    return fail(cudaErrorInvalidValue);

  const bool pageable = (!to_device && !find_pinned_block(c.to).begin) ||
                        (!from_device && !find_pinned_block(c.from).begin);
  if (pageable && stream->capture)
    return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported,
                      "a copy of pageable host memory in a capture");
  Node node{NodeKind::copy, "copy", [=] { run_copy(c, from_device, to_device); }};
  // Pageable memory is staged before the call returns.
  if (config().lazy && !synchronous && pageable && kind == cudaMemcpyHostToDevice) {
    std::vector<char> staged(c.width * c.height);
    Copy first = c, second = c;
    first.to = staged.data();
    first.to_pitch = second.from_pitch = c.width;
    run_copy(first, false, false);
    node.run = [second, staged = std::move(staged)]() mutable {
      second.from = staged.data();
      run_copy(second, false, true);
    };
  }
  if (const cudaError_t error = push(stream, std::move(node))) return error;
  if (synchronous || (pageable && kind == cudaMemcpyDeviceToHost)) drain(stream);
  return sticky_error();
}

}  // namespace
}  // namespace lipgrad_emulation

using namespace lipgrad_emulation;

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  LIPGRAD_EMULATION_ENTRY;
  if (const cudaError_t error = unsafe_in_capture("cudaMemcpy")) return error;
  return copy({to, bytes, from, bytes, bytes, 1}, kind, state_of(nullptr), true);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  return copy({to, bytes, from, bytes, bytes, 1}, kind, state_of(stream), false);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  return copy({to, to_pitch, from, from_pitch, width, height}, kind, state_of(stream), false);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  const Allocation target = find_device_block(to), source = find_device_block(from);
  if (!target.begin || target.device != to_device || !source.begin || source.device != from_device)
    return report(cudaErrorInvalidValue, "cudaMemcpyPeer: memory of another device");
  return copy({to, bytes, from, bytes, bytes, 1}, cudaMemcpyDeviceToDevice, state_of(stream),
              false);
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  if (bytes == 0) return cudaSuccess;
  const auto state = state_of(stream);
  if (!check_range(p, bytes, "cudaMemset", state->device)) return fail(cudaErrorInvalidValue);
  return push(state, {NodeKind::fill, "fill", [=] {
                        if (!check_range(p, bytes, "cudaMemset", state->device)) {
                          report_sticky(cudaErrorIllegalAddress,
                                        "cudaMemset: the memory was freed before it ran");
                          return;
                        }
                        const DeviceAccess access;
                        std::memset(p, value, bytes);
                      }});
}

cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  {
    LIPGRAD_EMULATION_ENTRY;
    if (const cudaError_t error = unsafe_in_capture("cudaMemset")) return error;
  }
  if (const cudaError_t error = cudaMemsetAsync(p, value, bytes, nullptr)) return error;
  const Lock lock(mutex());
  drain(state_of(nullptr));
  return sticky_error();
}
