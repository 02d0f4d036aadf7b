#include "recording.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include <lipgrad/core/check.h>
#include <lipgrad/core/cuda_graph.h>
#include <lipgrad/core/runtime.h>

#include "pool.h"

namespace lipgrad::cuda {

Recording::Recording() {
  check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreate");
}

Recording::~Recording() {
  cudaEventSynchronize(done_);
  free_kept();
  for (const Chunk& chunk : chunks_) cudaFreeHost(chunk.memory);
  cudaEventDestroy(done_);
}

void Recording::free_kept() {
  for (void* data : kept_) cudaFree(data);
  kept_.clear();
}

void Recording::begin(Context& context) {
  LIPGRAD_CHECK(!context.recording, "cuda: a CUDA graph is being recorded on cuda:{} already",
                context.index);
  check(cudaEventSynchronize(done_), "cudaEventSynchronize");
  free_kept();
  chunk_ = 0;
  used_ = 0;
  context_ = &context;
  context.pool->keep(&kept_);
  context.recording = this;
}

void Recording::upload(void* to, const void* from, std::int64_t bytes) {
  while (chunk_ < chunks_.size() && chunks_[chunk_].bytes - used_ < bytes) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    Chunk chunk{nullptr, std::max(bytes, chunk_bytes)};
    void* memory = nullptr;
    check(cudaMallocHost(&memory, static_cast<std::size_t>(chunk.bytes)), "cudaMallocHost");
    chunk.memory = static_cast<char*>(memory);
    chunks_.push_back(chunk);
  }
  char* place = chunks_[chunk_].memory + used_;
  used_ += (bytes + 63) / 64 * 64;
  std::memcpy(place, from, static_cast<std::size_t>(bytes));
  check(cudaMemcpyAsync(to, place, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        context_->stream),
        "cudaMemcpyAsync");
}

void Recording::end(bool launched) {
  context_->recording = nullptr;
  context_->pool->keep(nullptr);
  if (launched) check(cudaEventRecord(done_, context_->stream), "cudaEventRecord");
}

namespace {

class GraphRecorder final : public CudaGraph::Recorder {
 public:
  explicit GraphRecorder(int index) : index_(index) {}
  ~GraphRecorder() override {
    if (runnable_) cudaGraphExecDestroy(runnable_);
  }

  void run(const std::function<void()>& step) override {
    Context& c = context(index_);
    // Two in turn, so that the host may record one step while the device runs the one before.
    Recording& recording = recordings_[next_];
    next_ = 1 - next_;
    recording.begin(c);
    cudaGraph_t graph = nullptr;
    try {
      check(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeRelaxed),
            "cudaStreamBeginCapture");
      step();
      use_device(index_);
      check(cudaStreamEndCapture(c.stream, &graph), "cudaStreamEndCapture");
      launch(c, graph);
    } catch (...) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      if (cudaStreamIsCapturing(c.stream, &status) == cudaSuccess &&
          status != cudaStreamCaptureStatusNone)
        cudaStreamEndCapture(c.stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();
      recording.end(false);
      throw;
    }
    cudaGraphDestroy(graph);
    recording.end(true);
  }

 private:
  void launch(Context& c, cudaGraph_t graph) {
    if (runnable_) {
      cudaGraphExecUpdateResultInfo info{};
      if (cudaGraphExecUpdate(runnable_, graph, &info) != cudaSuccess) {
        cudaGetLastError();
        check(cudaGraphExecDestroy(runnable_), "cudaGraphExecDestroy");
        runnable_ = nullptr;
      }
    }
    if (!runnable_) {
      check(cudaGraphInstantiate(&runnable_, graph, 0), "cudaGraphInstantiate");
      ++builds;
    }
    check(cudaGraphLaunch(runnable_, c.stream), "cudaGraphLaunch");
  }

  int index_;
  std::array<Recording, 2> recordings_;
  int next_ = 0;
  cudaGraphExec_t runnable_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaGraph::Recorder> make_recorder(int index) {
  context(index);
  return std::make_unique<GraphRecorder>(index);
}

}  // namespace lipgrad::cuda
