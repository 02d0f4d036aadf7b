#pragma once

#include <cstdint>

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

}  // namespace lipgrad
