#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/optimizer.h>
#include <lipgrad/graph/feature_norm.h>
#include <lipgrad/graph/graph_conv.h>
#include <lipgrad/graph/lipschitz_norm.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

// What a layer does, each declared in a header of graph/.
enum class GnnLayer : std::uint8_t {
  gcn,          // GcnConv
  ggnn,         // GatedGraphConv of one step
  gat,          // GatConv
  gatv2,        // Gatv2Conv
  transformer,  // TransformerConv: the graph transformer of UniMP
};

// Whether layers of this kind have heads, attention dropout and a norm of scores.
bool has_attention(GnnLayer layer);
// Whether features of edges enter them.
bool takes_edge_features(GnnLayer layer);

// How a layer's result f joins what came in, h, wherever both have the same width.
enum class Residual : std::uint8_t {
  none,      // f
  plain,     // h + f
  weighted,  // h + alpha f, alpha learned for each feature (Qi et al., LipsFormer, ICLR 2023)
  damped,    // h + alpha (f - h), alpha learned for each feature
};

struct GnnOptions {
  GnnLayer layer = GnnLayer::gat;
  std::int64_t in = 0;   // features of a node
  std::int64_t out = 0;  // classes or tasks
  std::int64_t layers = 2;
  std::int64_t heads = 8;   // of all layers, but see out_heads; 1 without attention
  std::int64_t hidden = 8;  // features of each head

  // Whether a linear layer stands before the layers and another one after them, instead of layers
  // that take features in and give logits.
  bool linear_ends = false;
  std::int64_t out_heads = 1;     // without linear_ends: of the last layer, which is their mean
  std::int64_t input_width = 0;   // with linear_ends: of the first linear layer; 0: as wide as a
                                  // head, or as all heads for initial_residual and identity_map
  bool input_activation = false;  // ELU after the first linear layer
  bool last_activation = false;   // ELU and norm after the last layer too

  double dropout = 0.6;       // of the features that enter a layer
  double input_dropout = 0;   // of those that enter the first linear layer
  double output_dropout = 0;  // of those that enter the last linear layer
  double attention_dropout = 0.6;
  double negative_slope = 0.2;     // gat, gatv2
  std::int64_t edge_features = 0;  // of the graph, into every layer: gatv2, transformer
  bool root = true;                // transformer: a term of the node itself
  bool beta_gate = false;          // transformer: a gate between that term and the messages
  std::optional<LipschitzNorm> attention_norm = {};

  FeatureNormOptions norm = {};  // of features, at the end of every layer
  Residual residual = Residual::none;
  std::optional<double> residual_gain = {};  // alpha = gain / layers at first; unset: 1
  // a in [0, 1): a layer's result is (1 - a) f + a h0, with h0 what entered the first layer (Chen,
  // Wei, Huang, Ding, Li: GCNII, ICML 2020).
  double initial_residual = 0;
  // lambda > 0: layer l projects by (1 - beta) I + beta W, beta = ln(lambda / l + 1), as in GCNII;
  // 0: by W. Not for ggnn.
  double identity_map = 0;
  bool spectral_init = false;  // W normal, divided by its largest singular value; else Glorot
  // Each layer keeps only what enters it and is computed again in backward (see checkpoint()): half
  // as much again in time, for a fraction of the memory. Changes no result.
  bool checkpoint_layers = false;
  DType dtype = f32;
};

// Graph neural networks for node classification, from those of two layers to those of a hundred.
//
//   h = x, or ELU?(dropout(x) W0 + b0)                                      with linear_ends
//   for each layer l:  f = ELU(conv_l(dropout(h)));  f = (1 - a) f + a h0
//                      h = norm(residual(h, f))
//   logits = h, or dropout(h) W1 + b1                                       with linear_ends
//
// without ELU and norm after the last layer unless last_activation. The defaults are the network of
// Velickovic et al., ICLR 2018, section 3.3, for Cora and CiteSeer (8 heads of 8 features;
// out_heads = 8 for PubMed). Layers are named "input", "conv.0", "residual.0", "norm.0", ...,
// "output". Error for options out of range or that a kind of layer does not have, and for an
// initial residual or an identity map where widths differ.
class Gnn : public Module {
 public:
  explicit Gnn(const GnnOptions& options);
  Gnn(Module& parent, std::string name, const GnnOptions& options);

  // Logits (N, out) for features x (N, in), dense or sparse, and features of the edges (E,
  // edge_features), which a model made for none passes over.
  Tensor forward(const Graph& graph, const Features& x, Mode mode) const {
    return forward(graph, x, {}, mode);
  }
  Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                 Mode mode) const;

  // The logits in evaluation mode for graphs whose forward pass needs too much memory: layer by
  // layer, for block_nodes nodes at a time (see layer_by_blocks), with the features of two layers,
  // h0 where there is an initial residual, and what a block needs. The same up to rounding. Error
  // where a node's row depends on more than its neighbours' rows: layers of gcn, norms over all
  // nodes, a global LipschitzNorm.
  Tensor evaluate_by_blocks(const Graph& graph, const Features& x, const Tensor& edge_features,
                            std::int64_t block_nodes) const;

  const GnnOptions& options() const { return options_; }
  const GraphConv& conv(std::size_t layer) const { return *convs_[layer]; }

  Module convs{*this, "conv"};  // its layers, by number
  ModuleList<FeatureNorm> norm{*this, "norm"};
  ModuleList<WeightedResidual> residual{*this, "residual"};
  std::optional<Linear> input, output;

 private:
  void build();
  std::unique_ptr<GraphConv> make_conv(std::int64_t layer);
  bool joins(std::size_t layer) const;
  bool is_logits(std::size_t layer) const { return !output && layer + 1 == convs_.size(); }
  bool is_local() const;
  // What stands before the layers and after them.
  Features enter(const Features& x, Mode mode) const;
  Tensor leave(const Features& h, Mode mode) const;
  Tensor first_of(const Features& h) const;
  // One layer: features h, and first = a h0 where there is an initial residual.
  Tensor run_layer(std::size_t layer, const Graph& graph, const Features& h, const Tensor& first,
                   const Tensor& edge_features, Mode mode) const;

  GnnOptions options_;
  std::vector<std::unique_ptr<GraphConv>> convs_;
  std::vector<const WeightedResidual*> residual_of_;  // by layer, null where there is none
};

struct GnnGroupOptions {
  // L2 penalty of the layers' weights and biases; unset: the optimiser's.
  std::optional<double> layer_weight_decay = {};
  // The same of what only scales: attention vectors, residual weights, the norms' parameters.
  std::optional<double> scale_weight_decay = {};
  double scale_lr_factor = 1;  // of the learning rate for these
};

// Groups of a Gnn's parameters for an optimiser: Adam{gnn, {.groups = gnn_groups({...})}}.
std::vector<OptimizerGroup> gnn_groups(const GnnGroupOptions& options);

}  // namespace lipgrad
