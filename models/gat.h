#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/optimizer.h>
#include <lipgrad/graph/feature_norm.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

// How a layer's result f joins what came in, h, wherever both have the same width.
enum class Residual : std::uint8_t {
  none,      // f
  plain,     // h + f
  weighted,  // h + alpha f, alpha learned for each feature (Qi et al., LipsFormer, ICLR 2023)
  damped,    // h + alpha (f - h), alpha learned for each feature
};

// Which norm of the attention scores: none, LipschitzNorm of kind gat, or that norm as in the
// authors' code of 2022.
enum class AttentionNorm : std::uint8_t { none, lipschitz, lipschitz_reference };

struct GatOptions {
  std::int64_t in = 0;   // features of a node
  std::int64_t out = 0;  // classes
  std::int64_t layers = 2;
  std::int64_t heads = 8;   // of all layers, but see out_heads
  std::int64_t hidden = 8;  // features of each head

  // Whether a linear layer stands before the attention layers and another one after them, instead
  // of attention layers that take features in and give logits.
  bool linear_ends = false;
  std::int64_t out_heads = 1;     // without linear_ends: of the last layer, which is their mean
  std::int64_t input_width = 0;   // with linear_ends: of the first linear layer; 0: as wide as a
                                  // head, or as all heads for initial_residual and identity_map
  bool input_activation = false;  // ELU after the first linear layer
  bool last_activation = false;   // ELU and norm after the last attention layer too

  double dropout = 0.6;       // of the features that enter an attention layer
  double input_dropout = 0;   // of those that enter the first linear layer
  double output_dropout = 0;  // of those that enter the last linear layer
  double attention_dropout = 0.6;
  double negative_slope = 0.2;

  AttentionNorm attention_norm = AttentionNorm::none;
  double kappa = 4;
  FeatureNormKind norm = FeatureNormKind::none;  // of features, at the end of every layer
  double norm_scale = 1;                         // of PairNorm
  Residual residual = Residual::none;
  std::optional<double> residual_gain = {};  // alpha = gain / layers at first; unset: 1
  // a in [0, 1): a layer's result is (1 - a) f + a h0, with h0 what entered the first layer (Chen,
  // Wei, Huang, Ding, Li: GCNII, ICML 2020).
  double initial_residual = 0;
  // lambda > 0: layer l projects by (1 - beta) I + beta W, beta = ln(lambda / l + 1), as in GCNII;
  // 0: by W.
  double identity_map = 0;
  bool spectral_init = false;  // W normal, divided by its largest singular value; else Glorot
  DType dtype = f32;
};

// Graph attention networks for node classification, from the one of two layers to those of a
// hundred.
//
//   h = x, or ELU?(dropout(x) W0 + b0)                                      with linear_ends
//   for each layer l:  f = ELU(GatConv_l(dropout(h)));  f = (1 - a) f + a h0
//                      h = norm(residual(h, f))
//   logits = h, or dropout(h) W1 + b1                                       with linear_ends
//
// without ELU and norm after the last layer unless last_activation. The defaults are the network of
// Velickovic et al., ICLR 2018, section 3.3, for Cora and CiteSeer (8 heads of 8 features;
// out_heads = 8 for PubMed). Layers are named "input", "conv.0", "residual.0", "norm.0", ...,
// "output". Error for options out of range, and for an initial residual or an identity map where
// widths differ.
class Gat : public Module {
 public:
  explicit Gat(const GatOptions& options);
  Gat(Module& parent, std::string name, const GatOptions& options);

  // Logits (N, out) for features x (N, in), dense or sparse.
  Tensor forward(const Graph& graph, const Features& x, Mode mode) const;

  const GatOptions& options() const { return options_; }

  std::optional<Linear> input, output;
  ModuleList<GatConv> conv{*this, "conv"};
  ModuleList<FeatureNorm> norm{*this, "norm"};
  ModuleList<WeightedResidual> residual{*this, "residual"};

 private:
  void build();
  bool joins(std::size_t layer) const;

  GatOptions options_;
};

struct GatGroupOptions {
  // L2 penalty of the attention layers' weights and biases; unset: the optimiser's.
  std::optional<double> layer_weight_decay = {};
  // The same of what only scales: attention vectors, residual weights, the norms' parameters.
  std::optional<double> scale_weight_decay = {};
  double scale_lr_factor = 1;  // of the learning rate for these
};

// Groups of a Gat's parameters for an optimiser: Adam{gat, {.groups = gat_groups({...})}}.
std::vector<OptimizerGroup> gat_groups(const GatGroupOptions& options);

}  // namespace lipgrad
