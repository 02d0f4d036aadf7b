// Capture of streams, and graphs. A graph is the list of what was captured, in the order of the
// calls: one of the orders that the real graph allows.

#include <algorithm>
#include <string>

#include "state.h"
#include "streams.h"

struct CUgraphNode_st {};
struct CUgraph_st {
  std::vector<lipgrad_emulation::Node> nodes;
  std::vector<CUgraphNode_st> handles;
};
struct CUgraphExec_st {
  std::vector<lipgrad_emulation::Node> nodes;
};

namespace lipgrad_emulation {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

std::vector<std::shared_ptr<Capture>>& active() {
  static auto& captures = *new std::vector<std::shared_ptr<Capture>>;
  return captures;
}

}  // namespace

Capture::Member* Capture::member(const Stream* stream) {
  for (Member& member : members)
    if (member.stream.get() == stream) return &member;
  return nullptr;
}

cudaError_t invalidate(Capture& capture, cudaError_t error, const std::string& why) {
  capture.invalid = true;
  return report(error, why);
}

cudaError_t unsafe_in_capture(const char* call) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : active()) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool in_the_way = mine ? capture->mode != cudaStreamCaptureModeRelaxed
                                 : capture->mode == cudaStreamCaptureModeGlobal &&
                                       thread_mode == cudaStreamCaptureModeGlobal;
    if (in_the_way)
      error = invalidate(*capture, cudaErrorStreamCaptureUnsupported,
                         std::string(call) + " while a stream is captured");
  }
  return error;
}

cudaError_t refuse_if_captured(const Stream& stream, const char* call) {
  if (!stream.capture) return cudaSuccess;
  return invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported,
                    std::string(call) + " of a stream that is captured");
}

bool device_is_captured(int device) {
  bool found = false;
  for (const auto& capture : active()) {
    if (capture->origin->device != device) continue;
    found = capture->invalid = true;
  }
  return found;
}

void begin_capture(const std::shared_ptr<Stream>& stream, cudaStreamCaptureMode mode) {
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  stream->capture = capture;
  active().push_back(std::move(capture));
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  const std::shared_ptr<Capture> kept = capture;
  kept->ended = true;
  kept->origin->capture = nullptr;
  for (Capture::Member& member : kept->members) member.stream->capture = nullptr;
  active().erase(std::find(active().begin(), active().end(), kept));
}

}  // namespace lipgrad_emulation

using namespace lipgrad_emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  if (state->legacy)
    return report(cudaErrorStreamCaptureUnsupported, "the legacy stream cannot be captured");
  if (state->capture) return fail(cudaErrorIllegalState);
  begin_capture(state, mode);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  LIPGRAD_EMULATION_ENTRY;
  *graph = nullptr;
  const auto state = state_of(stream);
  const std::shared_ptr<Capture> capture = state->capture;
  if (!capture) return fail(cudaErrorIllegalState);
  if (capture->origin != state)
    return invalidate(*capture, cudaErrorStreamCaptureUnmatched,
                      "cudaStreamEndCapture of a stream that did not begin the capture");
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return report(cudaErrorStreamCaptureWrongThread,
                  "cudaStreamEndCapture by another thread than the one that began");
  end_capture(capture);
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  for (const Capture::Member& member : capture->members)
    if (member.joined < member.nodes)
      return report(cudaErrorStreamCaptureUnjoined,
                    "the capture ends with work in a stream that nothing waits for");
  *graph = new CUgraph_st{std::move(capture->nodes), {}};
  (*graph)->handles.resize((*graph)->nodes.size());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  *status = !state->capture           ? cudaStreamCaptureStatusNone
            : state->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  if (event->capture) {
    Capture& capture = *event->capture;
    if (capture.ended)
      return report(cudaErrorCapturedEvent,
                    "cudaStreamWaitEvent: the event was recorded in a capture that has ended");
    if (state->capture && state->capture != event->capture) {
      state->capture->invalid = true;
      return invalidate(capture, cudaErrorStreamCaptureMerge,
                        "cudaStreamWaitEvent would merge two captures");
    }
    if (state->legacy)
      return invalidate(capture, cudaErrorStreamCaptureImplicit,
                        "cudaStreamWaitEvent: the legacy stream cannot join a capture");
    if (!state->capture) {
      state->capture = event->capture;
      capture.members.push_back({state});
    }
    if (Capture::Member* member = capture.member(event->stream.get()))
      member->joined = std::max(member->joined, event->position);
    return cudaSuccess;
  }
  if (!event->stream) return cudaSuccess;
  if (state->capture)
    return invalidate(*state->capture, cudaErrorStreamCaptureIsolation,
                      "cudaStreamWaitEvent: a captured stream cannot wait for work outside");
  return push(state, {NodeKind::event, "wait", [from = event->stream, position = event->position] {
                        drain(from, position);
                      }});
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  LIPGRAD_EMULATION_ENTRY;
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  LIPGRAD_EMULATION_ENTRY;
  *result = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
  const std::vector<Node>&before = executable->nodes, &after = graph->nodes;
  if (before.size() != after.size()) {
    result->result = cudaGraphExecUpdateErrorTopologyChanged;
    return fail(cudaErrorGraphExecUpdateFailure);
  }
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (before[i].kind == after[i].kind) continue;
    *result = {cudaGraphExecUpdateErrorNodeTypeChanged, &graph->handles[i], nullptr};
    return fail(cudaErrorGraphExecUpdateFailure);
  }
  executable->nodes = after;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  LIPGRAD_EMULATION_ENTRY;
  const auto state = state_of(stream);
  for (const Node& node : executable->nodes)
    if (const cudaError_t error = push(state, node)) return error;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  LIPGRAD_EMULATION_ENTRY;
  if (nodes)
    for (std::size_t i = 0; i < *count && i < graph->handles.size(); ++i)
      nodes[i] = &graph->handles[i];
  *count = graph->handles.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Lock lock(mutex());
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Lock lock(mutex());
  delete executable;
  return cudaSuccess;
}
