#pragma once

#include <cstdint>

#include <lipgrad/core/cuda_graph.h>
#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// What the engine itself needs of a device; everything else is a kernel. One object a device kind.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual void fill(Tensor& x, double value) = 0;
  // Copies elements between tensors of equal shape and dtype, at least one of them on this device.
  virtual void copy(Tensor& to, const Tensor& from) = 0;
  // to += from summed over the dimensions in which `to` is broadcast (to.shape broadcasts to
  // from.shape). Partial sums are combined in an order that depends on the shapes alone.
  virtual void accumulate(Tensor& to, const Tensor& from) = 0;
  virtual bool has_nonfinite(const Tensor& x) = 0;
  virtual void synchronize() = 0;
};

// Error when this build or machine has no such device.
Runtime& runtime(Device device);

// How a gradient of shape `from` is summed to shape `to`, which broadcasts to it.
ReducedBox reduced_box(const Shape& to, const Shape& from);

struct CudaStatus;

// What cuda/ defines in builds with a CUDA backend; index is that of the device.
namespace cuda {
Runtime& runtime(int index);
void* allocate(int index, std::int64_t bytes);
void free(int index, void* data, std::int64_t bytes) noexcept;
memory::Counters memory_counters(int index);
void reset_memory_peak(int index);
void release_memory(int index);
CudaStatus query_status();
std::unique_ptr<CudaGraph::Recorder> make_recorder(int index);
}  // namespace cuda

}  // namespace lipgrad
