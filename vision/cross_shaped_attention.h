#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lipgrad/ops/conv2d.h>
#include <lipgrad/vision/multi_head_attention.h>
#include <lipgrad/vision/windows.h>

namespace lipgrad {

// Attention in windows of tokens with locally-enhanced positional encoding (Dong et al.: CSWin
// Transformer, CVPR 2022):
//
//   y = nu (attention(q, k, v) + LePE(v))
//
// LePE is a 3 x 3 convolution of each channel of v as a map of the window, with zeros around it;
// attention is HeadAttention's without nu, which is 1 in CSWin and 1 / sqrt(heads) in
// LipsFormer-CSwin's published code (nu_over_heads). Parameters: those of HeadAttention, and
// get_v.weight (C, 1, 3, 3), get_v.bias (C).
class LepeAttention : public HeadAttention {
 public:
  // convolution: the initialiser of get_v.weight; unset: as Conv2d's.
  LepeAttention(Module& parent, std::string name, const MultiHeadAttentionOptions& options,
                Size2d window, const Initializer& convolution = {});

  // qkv: (windows, T, 3 C), T = height width, row by row. Returns (windows, T, C).
  Tensor forward(const Tensor& qkv, Mode mode) const;

  Conv2d get_v;

 private:
  Size2d window_;
};

// A map of height x width tokens and the width of the stripes that they attend to; 0: to the whole
// map.
struct CrossShape {
  std::int64_t height, width, split;
};

// Attention to a cross of stripes (Dong et al., section 3.2): the first half of
// the heads, with the first half of the channels of queries, keys and values, attends within
// stripes of height x split tokens, the second within split x width ones; to the whole map all
// heads attend at once. The results side by side go through a linear layer.
//
// The parameters are the owner's, as in the published checkpoints: those of QkvLinear, attns.0 and
// attns.1 (LepeAttention), proj (weight, bias). Error unless split divides the map and heads can be
// halved.
class CrossShapedAttention {
 public:
  CrossShapedAttention(Module& owner, const MultiHeadAttentionOptions& options,
                       const CrossShape& shape, const Initializer& convolution = {});

  // x: (B, height, width, C). Returns the same shape.
  Tensor forward(const Tensor& x, Mode mode) const;
  // That each half of the heads, or all, attend in.
  const std::vector<Window>& windows() const { return windows_; }

 private:
  CrossShape shape_;
  double dropout_;
  std::vector<Window> windows_;

 public:
  QkvLinear qkv;
  ModuleList<LepeAttention> attns;
  Linear proj;
};

}  // namespace lipgrad
