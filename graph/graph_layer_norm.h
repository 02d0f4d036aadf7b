#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>

namespace lipgrad {

// (x - mean) / sqrt(var + eps) * weight + bias for x(N, D), with mean and variance (the mean
// squared deviation) over all N D elements: of one graph. f32 or f64. weight and bias have shape
// (D), or are undefined: 1 and 0. layer_norm() (ops/norm.h) is the one by row. It is PyTorch
// Geometric's LayerNorm(mode="graph") for a batch; for a single graph that one divides by
// sqrt(var) + eps. Error unless x is a matrix with D >= 1. No rows give no rows.
Tensor graph_layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                        double eps = 1e-5);

struct GraphLayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  // learn a scale and a shift of each feature, from 1 and 0
  DType dtype = f32;
};

// Normalises all features of a graph, x(nodes, features), together: graph_layer_norm(). Parameters,
// unless options.affine is false: weight and bias (features). Error unless features >= 1 and
// eps >= 0.
class GraphLayerNorm : public Module {
 public:
  GraphLayerNorm(Module& parent, std::string name, std::int64_t features,
                 const GraphLayerNormOptions& options = {});

  Tensor forward(const Tensor& x) const;

  std::optional<Parameter> weight, bias;

 private:
  std::int64_t features_;
  double eps_;
};

}  // namespace lipgrad
