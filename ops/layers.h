#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/module.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/sequential.h>

// The layers that all models share. Each is a module: the first two arguments are its parent and
// its name there. Options may be given by name: Linear fc{*this, "fc", 64, 7, {.bias = false}}.
namespace lipgrad {

struct LinearLayerOptions {
  bool bias = true;
  Activation activation = Activation::identity;  // fused, with its parameter as in LinearOptions
  std::optional<double> parameter{};
  // Unset: both uniform in +- 1 / sqrt(in).
  Initializer weight_initializer{}, bias_initializer{};
  DType dtype = f32;
};

// y(..., out) = f(x weight^T + bias) for x(..., in) or a sparse x(rows, in). Parameters: weight
// (out, in) and, unless options.bias is false, bias (out). Error unless in, out >= 1.
class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, std::int64_t in, std::int64_t out,
         const LinearLayerOptions& options = {});

  Tensor forward(const Tensor& x) const;
  Tensor forward(const CsrMatrix& x) const;

  Parameter weight;
  std::optional<Parameter> bias;

 private:
  LinearOptions options_;
};

}  // namespace lipgrad
