#include "streams.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "memory.h"
#include "state.h"

namespace lipgrad_emulation {
namespace {

std::vector<std::shared_ptr<Stream>>& all_streams() {
  static auto& streams = *new std::vector<std::shared_ptr<Stream>>;
  return streams;
}

std::shared_ptr<Stream>& legacy_stream(int device) {
  static auto& streams = *new std::vector<std::shared_ptr<Stream>>(kMaxDevices);
  std::shared_ptr<Stream>& stream = streams[device];
  if (!stream) {
    stream = std::make_shared<Stream>();
    stream->device = device;
    stream->legacy = true;
  }
  return stream;
}

// The legacy stream and the blocking streams of a device wait for each other.
cudaError_t keep_legacy_order(const Stream& stream) {
  if (stream.nonblocking) return cudaSuccess;
  if (!stream.legacy) {
    drain(legacy_stream(stream.device));
    return cudaSuccess;
  }
  for (const std::shared_ptr<Stream>& other : all_streams()) {
    if (other->device != stream.device || other->nonblocking) continue;
    if (other->capture)
      return invalidate(*other->capture, cudaErrorStreamCaptureImplicit,
                        "work in the legacy stream would wait for a stream that is captured");
    drain(other);
  }
  return cudaSuccess;
}

double now() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::shared_ptr<Stream> state_of(cudaStream_t stream) {
  return stream && stream != cudaStreamLegacy ? stream->state : legacy_stream(current_device());
}

cudaError_t push(const std::shared_ptr<Stream>& stream, Node node) {
  if (stream->capture) {
    Capture& capture = *stream->capture;
    if (capture.invalid) return fail(cudaErrorStreamCaptureInvalidated);
    capture.nodes.push_back(std::move(node));
    if (Capture::Member* member = capture.member(stream.get())) ++member->nodes;
    return cudaSuccess;
  }
  if (const cudaError_t error = keep_legacy_order(*stream)) return error;
  ++stream->queued;
  if (config().lazy) {
    stream->queue.push_back(std::move(node));
  } else {
    node.run();
    ++stream->done;
  }
  return sticky_error();
}

void drain(const std::shared_ptr<Stream>& stream, std::uint64_t up_to) {
  while (stream->done < up_to && !stream->queue.empty()) {
    const Node node = std::move(stream->queue.front());
    stream->queue.pop_front();
    node.run();
    ++stream->done;
  }
}

void drain_device(int device) {
  drain(legacy_stream(device));
  for (const std::shared_ptr<Stream>& stream : all_streams())
    if (stream->device == device) drain(stream);
}

void drain_all() {
  for (int device = 0; device < kMaxDevices; ++device) drain_device(device);
}

int stream_device(cudaStream_t stream) {
  const Lock lock(mutex());
  return state_of(stream)->device;
}

cudaError_t enqueue_host(cudaStream_t stream, const char* what, std::function<void()> run) {
  LIPGRAD_EMULATION_ENTRY;
  return push(state_of(stream), {NodeKind::library, what, [run = std::move(run)] {
                                   const DeviceAccess access;
                                   run();
                                 }});
}

}  // namespace lipgrad_emulation

using namespace lipgrad_emulation;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  LIPGRAD_EMULATION_ENTRY;
  auto state = std::make_shared<Stream>();
  state->device = current_device();
  state->nonblocking = (flags & cudaStreamNonBlocking) != 0;
  all_streams().push_back(state);
  *stream = new CUstream_st{state};
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  if (!stream || stream == cudaStreamLegacy) return fail(cudaErrorInvalidResourceHandle);
  if (stream->state->capture) end_capture(stream->state->capture);
  drain(stream->state);
  auto& all = all_streams();
  all.erase(std::find(all.begin(), all.end(), stream->state));
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  if (const cudaError_t error = refuse_if_captured(*state, "cudaStreamSynchronize")) return error;
  if (const cudaError_t error = keep_legacy_order(*state)) return error;
  drain(state);
  return sticky_error();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  if (const cudaError_t error = refuse_if_captured(*state, "cudaStreamQuery")) return error;
  drain(state, state->done + 1);  // so that a loop around it ends
  return state->queue.empty() ? sticky_error() : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  LIPGRAD_EMULATION_ENTRY;
  if (device_is_captured(current_device()))
    return report(cudaErrorStreamCaptureUnsupported,
                  "cudaDeviceSynchronize while a stream of the device is captured");
  drain_device(current_device());
  return sticky_error();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  LIPGRAD_EMULATION_ENTRY;
  *event = new CUevent_st;
  (*event)->device = current_device();
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  LIPGRAD_EMULATION_ENTRY;
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  if (event->device != state->device)
    return report(cudaErrorInvalidResourceHandle,
                  "cudaEventRecord: the event and the stream belong to different devices");
  event->capture = state->capture;
  event->stream = state;
  if (state->capture) {  // a mark in the capture, not a node
    const Capture::Member* member = state->capture->member(state.get());
    event->position = member ? member->nodes : 0;
    return state->capture->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  }
  const cudaError_t error =
      push(state, {NodeKind::event, "event", [time = event->milliseconds] { *time = now(); }});
  event->position = state->queued;
  return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  LIPGRAD_EMULATION_ENTRY;
  if (event->capture)
    return invalidate(*event->capture, cudaErrorCapturedEvent,
                      "cudaEventSynchronize of an event that was recorded in a capture");
  if (const cudaError_t error = unsafe_in_capture("cudaEventSynchronize")) return error;
  if (event->stream) drain(event->stream, event->position);
  return sticky_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  LIPGRAD_EMULATION_ENTRY;
  if (event->capture)
    return invalidate(*event->capture, cudaErrorCapturedEvent,
                      "cudaEventQuery of an event that was recorded in a capture");
  if (const cudaError_t error = unsafe_in_capture("cudaEventQuery")) return error;
  if (!event->stream) return cudaSuccess;
  if (event->stream->done < event->position) drain(event->stream, event->stream->done + 1);
  return event->stream->done >= event->position ? sticky_error() : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  LIPGRAD_EMULATION_ENTRY;
  for (const cudaEvent_t event : {start, end}) {
    if (!event->stream || event->capture) return fail(cudaErrorInvalidResourceHandle);
    if (event->stream->done < event->position) return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(*end->milliseconds - *start->milliseconds);
  return cudaSuccess;
}
