#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/graph/gatv2_attention.h>
#include <lipgrad/graph/graph_conv.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

struct Gatv2ConvOptions {
  std::int64_t in = 0;   // features of a node that come in
  std::int64_t out = 0;  // features of a head that go out
  std::int64_t heads = 1;
  bool concat = true;  // heads side by side: heads * out features go out; else their mean, out
  bool self_loops = true;
  double negative_slope = 0.2;
  double attention_dropout = 0;
  bool share_weights = false;      // lin_l projects targets too; there is no lin_r
  std::int64_t edge_features = 0;  // of an edge; 0: there are none
  // LipschitzNorm of the scores, of kind gatv2 (an extension). With target_lipschitz both
  // projections are divided by gat_certificate() times the norm of [lin_l; lin_r] and multiplied by
  // the target, as in GatConv; there is no certificate with features of edges.
  std::optional<LipschitzNorm> norm = {};
  // beta in (0, 1]: projections by (1 - beta) I + beta weight, as in GatConv.
  double identity_map = 1;
  Initializer weight_initializer{};  // unset: Glorot uniform
  bool bias = true;                  // of both projections and of the output
  DType dtype = f32;
};

// GATv2 (Brody, Alon, Yahav, ICLR 2022): y = gatv2_attention(graph, lin_r x, lin_l x, att, ...),
// see gatv2_attention.h. Its parameters are, by name and initialiser, those of GATv2Conv in PyTorch
// Geometric: lin_l (sources, and the values) and lin_r (targets) with weight (heads out, in) and
// bias, att (heads, out), lin_edge.weight (heads out, edge_features), bias; Glorot uniform, and
// zeros for biases. A loop that self_loops adds has the mean features of the edges into its node
// (loops of the graph excepted, which are passed over). Error unless in, out, heads >= 1 and the
// options are as said there.
class Gatv2Conv : public GraphConv {
 public:
  Gatv2Conv(Module& parent, std::string name, const Gatv2ConvOptions& options);

  // x: (N, in), dense or sparse; edge_features (E, edge_features), in the graph's order of edges.
  // Returns (N, heads * out), or (N, out) without concat.
  using GraphConv::forward;
  Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                 Mode mode) const override;

  std::int64_t in_features() const override { return options_.in; }
  std::int64_t out_features() const override {
    return options_.concat ? options_.heads * options_.out : options_.out;
  }
  const Gatv2ConvOptions& options() const { return options_; }

  Linear lin_l;
  std::optional<Linear> lin_r;
  Parameter att;
  std::optional<Linear> lin_edge;
  std::optional<Parameter> bias;

 private:
  Gatv2ConvOptions options_;
};

// (N, F): for each node the mean features of the edges (E, F) into it, its loops excepted; 0 where
// there are none. What a loop that is added has for features.
Tensor loop_features(const Graph& graph, const Tensor& edge_features);

}  // namespace lipgrad
