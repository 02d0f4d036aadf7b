#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <lipgrad/core/device.h>

namespace lipgrad {

// A training step launched as one CUDA graph instead of kernel by kernel, which removes the gaps
// between small kernels. The work of the step is recorded anew every time, and the graph of the
// time before is updated with its arguments (learning rates, random draws, addresses), so that the
// results are the bits of the step run plainly; only when the work itself differs (other shapes)
// is the graph built again.
//
//   CudaGraph graph(device);
//   for (...) { Tensor loss; graph.run([&] { loss = step(); }); ... }
//
// Nothing may be read back within the step (item(), copies to the CPU, clipping by norm): an Error.
// What the step leaves behind (the loss) is ready for kernels and copies as soon as run() returns.
// On the CPU run() just calls the function.
class CudaGraph {
 public:
  explicit CudaGraph(Device device);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // An exception of `step` is re-thrown; what it had recorded is dropped.
  void run(const std::function<void()>& step);
  // How many times a graph was built; the first time, and whenever the work changed.
  std::int64_t builds() const;

  struct Recorder;

 private:
  std::unique_ptr<Recorder> recorder_;  // none on the CPU
};

// What cuda/ implements.
struct CudaGraph::Recorder {
  virtual ~Recorder() = default;
  virtual void run(const std::function<void()>& step) = 0;
  std::int64_t builds = 0;
};

}  // namespace lipgrad
