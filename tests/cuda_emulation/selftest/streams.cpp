// Work that nothing waits for, and what may not be done while a stream is captured.

#include <cstring>

#include "selftest.h"

namespace selftest {
namespace {

// n floats of pinned memory.
struct Pinned {
  explicit Pinned(int n) {
    must(cudaMallocHost(&data, n * sizeof(float)), "cudaMallocHost");
    std::memset(data, 0, n * sizeof(float));
  }
  ~Pinned() { cudaFreeHost(data); }
  float* data = nullptr;
};

PLANTED(missing_wait_for_a_stream, "lazy") {
  const Array x(count_up(64)), y(64);
  const OwnStream stream;
  const Pinned host(64);
  queue(stream.get(), copy_kernel, 1, 64, x.read(), y.get(), 64);
  must(cudaMemcpyAsync(host.data, y.read(), 256, cudaMemcpyDeviceToHost, stream.get()), "copy");
  if (host.data[5] != 6) throw Seen{"wrong value: the copy has not run"};
}

PLANTED(missing_wait_for_an_event, "lazy") {
  const Array x(count_up(64)), middle(64), y(64);
  const OwnStream first, second;
  queue(first.get(), copy_kernel, 1, 64, x.read(), middle.get(), 64);
  queue(second.get(), copy_kernel, 1, 64, middle.read(), y.get(), 64);
  must(cudaStreamSynchronize(second.get()), "cudaStreamSynchronize");
  check_values(y, count_up(64));
}

// The pinned source is changed before the copy from it has run.
PLANTED(staging_reused_too_early, "lazy") {
  const Array y(64);
  const OwnStream stream;
  const Pinned host(64);
  for (int i = 0; i < 64; ++i) host.data[i] = static_cast<float>(i + 1);
  must(cudaMemcpyAsync(y.get(), host.data, 256, cudaMemcpyHostToDevice, stream.get()), "copy");
  std::memset(host.data, 0, 256);
  must(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  check_values(y, count_up(64));
}

void begin(const OwnStream& stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
  must(cudaStreamBeginCapture(stream.get(), mode), "cudaStreamBeginCapture");
}
cudaGraph_t end(const OwnStream& stream) {
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  return graph;
}

PLANTED(allocation_in_capture, "emulation") {
  const OwnStream stream;
  begin(stream, cudaStreamCaptureModeGlobal);
  const Array x(64);
}
PLANTED(wait_in_capture, "emulation") {
  const OwnStream stream;
  begin(stream);
  must(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}
PLANTED(query_of_captured_event, "emulation") {
  const OwnStream stream;
  cudaEvent_t event = nullptr;
  must(cudaEventCreate(&event), "cudaEventCreate");
  begin(stream);
  must(cudaEventRecord(event, stream.get()), "cudaEventRecord");
  must(cudaEventQuery(event), "cudaEventQuery");
}
PLANTED(pageable_copy_in_capture, "emulation") {
  const Array x(count_up(64));
  std::vector<float> host(64);
  const OwnStream stream;
  begin(stream);
  must(cudaMemcpyAsync(host.data(), x.read(), 256, cudaMemcpyDeviceToHost, stream.get()), "copy");
}
PLANTED(wait_for_work_outside_the_capture, "emulation") {
  const Array x(count_up(64)), y(64);
  const OwnStream stream, other;
  cudaEvent_t event = nullptr;
  must(cudaEventCreate(&event), "cudaEventCreate");
  queue(other.get(), copy_kernel, 1, 64, x.read(), y.get(), 64);
  must(cudaEventRecord(event, other.get()), "cudaEventRecord");
  begin(stream);
  must(cudaStreamWaitEvent(stream.get(), event), "cudaStreamWaitEvent");
}
PLANTED(stream_not_joined, "emulation") {
  const Array x(count_up(64)), y(64);
  const OwnStream stream, other;
  cudaEvent_t event = nullptr;
  must(cudaEventCreate(&event), "cudaEventCreate");
  begin(stream);
  must(cudaEventRecord(event, stream.get()), "cudaEventRecord");
  must(cudaStreamWaitEvent(other.get(), event), "cudaStreamWaitEvent");
  queue(other.get(), copy_kernel, 1, 64, x.read(), y.get(), 64);
  end(stream);
}
PLANTED(memory_freed_before_the_graph_runs, "emulation") {
  const Array x(count_up(64));
  const OwnStream stream;
  cudaGraphExec_t graph = nullptr;
  {
    const Array y(64);
    begin(stream);
    queue(stream.get(), copy_kernel, 1, 64, x.read(), y.get(), 64);
    must(cudaGraphInstantiate(&graph, end(stream), 0), "cudaGraphInstantiate");
  }
  must(cudaGraphLaunch(graph, stream.get()), "cudaGraphLaunch");
  must(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}
PLANTED(graph_updated_with_another, "emulation") {
  const Array x(count_up(64)), y(64);
  const OwnStream stream;
  cudaGraphExec_t graph = nullptr;
  begin(stream);
  queue(stream.get(), copy_kernel, 1, 64, x.read(), y.get(), 64);
  must(cudaGraphInstantiate(&graph, end(stream), 0), "cudaGraphInstantiate");
  begin(stream);
  must(cudaMemsetAsync(y.get(), 0, 4, stream.get()), "cudaMemset");
  cudaGraphExecUpdateResultInfo result;
  must(cudaGraphExecUpdate(graph, end(stream), &result), "cudaGraphExecUpdate");
}

}  // namespace
}  // namespace selftest
