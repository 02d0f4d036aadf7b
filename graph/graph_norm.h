#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

struct GraphNormOptions {
  double eps = 1e-5;
  DType dtype = f32;
};

// GraphNorm (Cai et al., ICML 2021): graph_norm() of ops/batch_norm.h with learned columns. As
// GraphNorm in PyTorch Geometric: parameters weight (features), from 1, bias, from 0, and
// mean_scale, from 1. The moments are always those of the nodes that are given. Error unless
// features >= 1 and eps >= 0.
class GraphNorm : public Module {
 public:
  GraphNorm(Module& parent, std::string name, std::int64_t features,
            const GraphNormOptions& options = {});

  // All rows of x(N, features) together.
  Tensor forward(const Tensor& x) const;
  // Each graph of a batch by itself.
  Tensor forward(const Graph& graph, const Tensor& x) const;

  Parameter weight, bias, mean_scale;

 private:
  Tensor normalize(const Tensor& x, const Tensor& offsets) const;

  std::int64_t features_;
  double eps_;
};

}  // namespace lipgrad
