#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/graph_conv.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

struct GatConvOptions {
  std::int64_t in = 0;   // features of a node that come in
  std::int64_t out = 0;  // features of a head that go out
  std::int64_t heads = 1;
  bool concat = true;  // heads side by side: heads * out features go out; else their mean, out
  bool self_loops = true;
  double negative_slope = 0.2;
  double attention_dropout = 0;
  // LipschitzNorm of the scores. With target_lipschitz the projection is divided by
  // gat_certificate() times its own norm (spectral_norm_of(), through which gradients go, unless
  // detach) and multiplied by the target: as scores do not depend on its size, that multiplies the
  // output, the bias excepted. The certificate counts the graph's edges in every forward pass.
  std::optional<LipschitzNorm> norm = {};
  // beta in (0, 1]: features are projected by (1 - beta) I + beta lin.weight (the identity map of
  // GCNII: Chen, Wei, Huang, Ding, Li, ICML 2020, equation 5), which asks for in = heads * out.
  double identity_map = 1;
  Initializer weight_initializer{};  // unset: Glorot uniform
  bool bias = true;
  DType dtype = f32;
};

// The graph attention layer (Velickovic et al., ICLR 2018): y = gat_attention(graph, x lin^T, ...),
// see gat_attention.h. Its parameters are, by name and initialiser, those of GATConv in PyTorch
// Geometric: lin.weight (heads out, in), att_src and att_dst (heads, out), all Glorot uniform, and
// bias, zeros. Error unless in, out, heads >= 1 and the options are as said there.
class GatConv : public GraphConv {
 public:
  GatConv(Module& parent, std::string name, const GatConvOptions& options);

  // x: (N, in), dense or sparse. Returns (N, heads * out), or (N, out) without concat.
  using GraphConv::forward;
  Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                 Mode mode) const override;

  std::int64_t in_features() const override { return options_.in; }
  std::int64_t out_features() const override {
    return options_.concat ? options_.heads * options_.out : options_.out;
  }

  const GatConvOptions& options() const { return options_; }

  Linear lin;
  Parameter att_src, att_dst;
  std::optional<Parameter> bias;

 private:
  GatConvOptions options_;
};

}  // namespace lipgrad
