#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/ops/layers.h>
#include <lipgrad/vision/dense_attention.h>

namespace lipgrad {

// Which of the queries, keys and values have a bias.
enum class QkvBias : std::uint8_t { none, all, queries_and_values };
// A number of attention that is learned: no, one for all heads, or one a head.
enum class Learned : std::uint8_t { no, one, each_head };

struct MultiHeadAttentionOptions {
  std::int64_t dim = 0;  // C: channels that come in and go out
  std::int64_t heads = 1;
  QkvBias qkv_bias = QkvBias::all;
  // Its heads stay 0. Its tau and nu are where learned ones start.
  DenseAttentionOptions attention = {};
  Learned learn_tau = Learned::no, learn_nu = Learned::no;
  bool nu_over_heads = false;  // nu, or where a learned one starts, is divided by sqrt(heads)
  // With a ceiling what is learned is theta, tau = exp(min(theta, log ceiling)) (Liu et al.: Swin
  // Transformer V2, CVPR 2022, section 3.2: from tau 10, ceiling 100).
  std::optional<double> tau_ceiling = {};
  // Queries and keys of each head go through a layer_norm() with a learned scale of each of its D
  // features and no shift (Dehghani et al.: Scaling vision transformers to 22 billion parameters,
  // ICML 2023, section 2).
  bool qk_norm = false;
  double projection_dropout = 0;  // of what goes out
  // Of both projections; unset: as Linear's.
  Initializer weight_initializer{}, bias_initializer{};
  DType dtype = f32;
};

// The linear layer to queries, keys and values, (..., C) to (..., 3 C). Parameters of the parent:
// qkv.weight (3 C, C), and qkv.bias (3 C), or q_bias and v_bias (C) under queries_and_values.
class QkvLinear : public Linear {
 public:
  QkvLinear(Module& parent, const MultiHeadAttentionOptions& options);

  Tensor forward(const Tensor& x) const;
  // (3 C), zeros for keys that have none; undefined where nothing has.
  Tensor whole_bias() const;

  std::optional<Parameter> q_bias, v_bias;
};

// What lies between an attention layer's projections: dense_attention() with the options' score.
// Parameters: tau, or logit_scale (theta) with a ceiling, and nu, (1) or (H), where learned; q_norm
// and k_norm (D) under qk_norm.
//
// Error unless dim is a multiple of heads >= 1, and where the options contradict each other: a
// ceiling without a learned tau, or a start that is not positive and at most the ceiling.
class HeadAttention : public Module {
 public:
  HeadAttention(Module& parent, std::string name, const MultiHeadAttentionOptions& options);

  const MultiHeadAttentionOptions& options() const { return options_; }

  std::optional<Parameter> tau, logit_scale, nu, q_norm, k_norm;

 protected:
  // qkv: (B, T, 3 C). Returns (B, T, C). The bias (H, T, T) of the scores and the regions (W, T)
  // may be undefined.
  Tensor attend_heads(const Tensor& qkv, const Tensor& bias, const Tensor& regions,
                      Mode mode) const;

 private:
  MultiHeadAttentionOptions options_;
};

// Self-attention of the tokens of an image or window (Vaswani et al.: Attention is all you need,
// NeurIPS 2017, section 3.2.2): y = proj(attention(qkv(x))). Parameters: those of QkvLinear and of
// HeadAttention, and proj (weight, bias).
class MultiHeadAttention : public HeadAttention {
 public:
  MultiHeadAttention(Module& parent, std::string name, const MultiHeadAttentionOptions& options);

  // x: (B, T, C). Returns the same shape.
  Tensor forward(const Tensor& x, Mode mode) const { return attend(x, {}, {}, mode); }

  QkvLinear qkv;
  Linear proj;

 protected:
  // The same with a bias and regions, see HeadAttention.
  Tensor attend(const Tensor& x, const Tensor& bias, const Tensor& regions, Mode mode) const;
};

// The projection of what attention gives, (C, C).
LinearLayerOptions projection_options(const MultiHeadAttentionOptions& options);

}  // namespace lipgrad
