#include "context.h"

#include <array>
#include <string>

#include <lipgrad/core/check.h>
#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/kernel.h>

#include "libraries.h"
#include "pool.h"
#include "staging.h"

namespace lipgrad::cuda {
namespace {

constexpr int max_devices = 64;

// Of the device that is current here: looked up at every launch, hence without a lock.
thread_local Context* current = nullptr;

std::array<Context*, max_devices>& contexts() {
  static auto& all = *new std::array<Context*, max_devices>{};
  return all;
}
std::mutex& contexts_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

Context* make_context(int index) {
  const CudaStatus status = cuda_status();
  LIPGRAD_CHECK(status.problem.empty(), "device: cuda:{} asked for, but {}", index, status.problem);
  LIPGRAD_CHECK(
      index >= 0 && index < static_cast<int>(status.devices.size()) && index < max_devices,
      "device: cuda:{} asked for, but this machine has {} CUDA device{} (cuda:0{})", index,
      status.devices.size(), status.devices.size() == 1 ? "" : "s",
      status.devices.size() == 1 ? "" : " to cuda:" + std::to_string(status.devices.size() - 1));
  check(cudaSetDevice(index), "cudaSetDevice");
  auto made = std::make_unique<Context>();
  made->index = index;
  made->multiprocessors = status.devices[index].multiprocessors;
  check(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "cudaStreamCreate");
  made->pool = std::make_unique<Pool>(index);
  made->staging = std::make_unique<Staging>();
  void* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(Faults)), "cudaMalloc");
  made->faults = static_cast<Faults*>(memory);
  check(cudaMallocHost(&memory, sizeof(Faults)), "cudaMallocHost");
  made->host_faults = static_cast<Faults*>(memory);
  check(cudaMemsetAsync(made->faults, 0xff, sizeof(Faults), made->stream), "cudaMemset");
  return made.release();
}

const char* what_faults_are(int fault) {
  switch (static_cast<Fault>(fault)) {
    case Fault::index:
      return "an index of gather, embedding or scatter_add";
    case Fault::label:
      return "a label of cross_entropy or accuracy";
    case Fault::row:
      return "a row chosen for cross_entropy or accuracy";
  }
  return "an input";
}

}  // namespace

void throw_error(cudaError_t error, const char* what) {
  cudaGetLastError();  // so that it is not told again
  fail("cuda: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

Context& context(int index) {
  if (current && current->index == index) return *current;
  current = nullptr;  // unknown, should what follows fail
  Context*& slot = contexts()[index >= 0 && index < max_devices ? index : 0];
  {
    const std::lock_guard lock(contexts_mutex());
    if (!slot || slot->index != index) slot = make_context(index);
  }
  check(cudaSetDevice(index), "cudaSetDevice");
  current = slot;
  return *current;
}

Context& context() { return current ? *current : context(0); }

void use_device(int index) { context(index); }

cudaStream_t stream() { return context().stream; }
int multiprocessors() { return context().multiprocessors; }
Faults* faults() { return context().faults; }

void synchronize(Context& c) {
  LIPGRAD_CHECK(!c.recording,
                "cuda: a value was read within a step that is recorded as a CUDA graph; read it "
                "after the step, or run without the graph");
  check(cudaMemcpyAsync(c.host_faults, c.faults, sizeof(Faults), cudaMemcpyDeviceToHost, c.stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(c.stream), "synchronize");
  for (int fault = 0; fault < kFaults; ++fault) {
    const unsigned long long position = c.host_faults->position[fault];
    if (position == ~0ull) continue;
    check(cudaMemsetAsync(c.faults, 0xff, sizeof(Faults), c.stream), "cudaMemset");
    fail(
        "cuda:{}: {} (position {}) is not in [0, {}); it was left out. Kernels tell such things "
        "late: the call itself came before this one",
        c.index, what_faults_are(fault), position, c.host_faults->limit[fault]);
  }
}

unsigned blocks_for(std::int64_t n, std::int64_t per_block) {
  const std::int64_t blocks = (n + per_block - 1) / per_block;
  LIPGRAD_CHECK(blocks <= 0x7fffffff, "cuda: {} items are too many for one launch", n);
  return static_cast<unsigned>(blocks);
}

}  // namespace lipgrad::cuda
