#include <lipgrad/core/cuda_graph.h>

#include <lipgrad/config.h>
#include <lipgrad/core/runtime.h>

namespace lipgrad {

CudaGraph::CudaGraph(Device device) {
  runtime(device);
  if constexpr (kWithCuda)
    if (device.is_cuda()) recorder_ = cuda::make_recorder(device.index);
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::run(const std::function<void()>& step) {
  if (recorder_)
    recorder_->run(step);
  else
    step();
}

std::int64_t CudaGraph::builds() const { return recorder_ ? recorder_->builds : 0; }

}  // namespace lipgrad
