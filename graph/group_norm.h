#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/random.h>
#include <lipgrad/ops/batch_norm.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

struct DiffGroupNormOptions {
  std::int64_t groups = 10;
  double lambda = 0.01;
  double eps = 1e-5;
  double momentum = 0.1;
  DType dtype = f32;
};

// Differentiable group normalisation (Zhou, Huang, Li, Zha, Chen, Hu, "Towards Deeper Graph Neural
// Networks with Differentiable Group Normalization", NeurIPS 2020, arXiv:2006.06972): nodes belong
// to learned groups, S = softmax(x lin.weight^T), and each group is normalised by itself,
//
//   y = x + lambda sum_g BatchNorm_g(S[:, g] x)
//
// As DiffGroupNorm in PyTorch Geometric: lin.weight (groups, features), and norm, a BatchNorm of
// groups * features columns with its buffers. N * groups * features numbers are kept. Error unless
// features, groups >= 1.
class DiffGroupNorm : public Module {
 public:
  DiffGroupNorm(Module& parent, std::string name, std::int64_t features,
                const DiffGroupNormOptions& options = {});

  // x: (N, features), N >= 2 in training.
  Tensor forward(const Tensor& x, Mode mode) const;

  Linear lin;
  BatchNorm norm;

 private:
  std::int64_t features_;
  DiffGroupNormOptions options_;
};

}  // namespace lipgrad
