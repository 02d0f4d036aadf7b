#pragma once

#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Message normalisation (Li, Xiong, Thabet, Ghanem, "DeeperGCN", arXiv:2006.07739, equation 7):
//
//   y_i = scale |x_i| m_i / max(|m_i|, 1e-12)
//
// what a node receives, m (N, D), as long as what it had, x (N, any), times scale (1). f32 or f64.
// All three have gradients; those of a row of zeros are zero for x. Error unless the shapes fit.
Tensor message_norm(const Tensor& m, const Tensor& x, const Tensor& scale);

struct MessageNormOptions {
  double scale = 1;
  bool learn_scale = true;  // else scale is a constant
  DType dtype = f32;
};

// message_norm() with the parameter scale (1).
class MessageNorm : public Module {
 public:
  MessageNorm(Module& parent, std::string name, const MessageNormOptions& options = {});

  Tensor forward(const Tensor& m, const Tensor& x) const;

  Parameter scale;
};

}  // namespace lipgrad
