#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/graph/gat_conv.h>

namespace lipgrad {

struct GatOptions {
  std::int64_t in = 0;   // features of a node
  std::int64_t out = 0;  // classes
  std::int64_t layers = 2;
  std::int64_t heads = 8;      // of all layers but the last
  std::int64_t hidden = 8;     // features of each of these heads
  std::int64_t out_heads = 1;  // of the last layer, which is their mean
  double dropout = 0.6;        // of the features that enter a layer
  double attention_dropout = 0.6;
  double negative_slope = 0.2;
  DType dtype = f32;
};

// The graph attention network for node classification (Velickovic et al., ICLR 2018, section 3.3):
// dropout, GatConv, ELU for every layer but the last; dropout, GatConv for the last. The defaults
// are the paper's for Cora and CiteSeer (8 heads of 8 features; out_heads = 8 for PubMed). The
// layers are named "conv.0", "conv.1", ...; see GatConv for their parameters.
class Gat : public Module {
 public:
  explicit Gat(const GatOptions& options);
  Gat(Module& parent, std::string name, const GatOptions& options);

  // Logits (N, out) for features x (N, in), dense or sparse.
  Tensor forward(const Graph& graph, const Features& x, Mode mode) const;

  const GatOptions& options() const { return options_; }

  ModuleList<GatConv> conv{*this, "conv"};

 private:
  void build();

  GatOptions options_;
};

}  // namespace lipgrad
