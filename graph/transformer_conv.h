#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/graph/features.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/graph/graph_conv.h>
#include <lipgrad/graph/lipschitz_norm.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

struct TransformerConvOptions {
  std::int64_t in = 0;   // features of a node that come in
  std::int64_t out = 0;  // features of a head that go out
  std::int64_t heads = 1;
  bool concat = true;       // heads side by side: heads * out features go out; else their mean, out
  bool self_loops = false;  // every node attends to itself once, whatever self-loops there are
  bool root = true;         // adds lin_skip(x)
  bool beta = false;        // the gate between the root term and the messages; needs the root term
  std::int64_t edge_features = 0;  // of an edge; 0: none
  double attention_dropout = 0;
  // Scores divided by max{u v, u w, v w} (kind dot_uvw) instead of sqrt(out).
  std::optional<LipschitzNorm> norm = {};
  // beta in (0, 1]: values are (1 - beta) x + beta lin_value(x) without its bias, plus the bias
  // (the identity map of GCNII: Chen, Wei, Huang, Ding, Li, ICML 2020, equation 5), which asks for
  // in = heads * out. Values are what is averaged, as the features of GCNII are; queries and keys
  // only weight them.
  double identity_map = 1;
  Initializer weight_initializer{};  // of all projections; unset: uniform in +- 1 / sqrt(in)
  bool bias = true;                  // of all projections of nodes
  DType dtype = f32;
};

// The graph transformer layer (Shi, Huang, Feng, Zhong, Wang, Sun: Masked label prediction: unified
// message passing model for semi-supervised classification, IJCAI 2021, equations 3 to 5):
//
//   out_i = sum_j alpha_ij (W_v x_j + W_e e_ij),  alpha_ij = softmax over the edges into i of
//           <W_q x_i, W_k x_j + W_e e_ij> / sqrt(D)
//   y_i = out_i + W_s x_i,  or with the gate  g W_s x_i + (1 - g) out_i,
//           g = sigmoid(<w, [out_i, W_s x_i, out_i - W_s x_i]>)
//
// by heads, as dot_attention() computes it: nothing has the size of the edges times the features.
// Its parameters are, by name, shape and initialiser, those of TransformerConv in PyTorch
// Geometric: lin_key, lin_query, lin_value (weight, bias), lin_edge.weight, lin_skip (weight, bias)
// and lin_beta.weight.
//
// With norm.target_lipschitz the output is multiplied by target / (C |[W_q | W_k | W_v]|_2 +
// |W_s|_2), C of certificate() for the graph: the layer's Lipschitz constant as a function of x is
// at most the target.
//
// Error unless in, out, heads >= 1 and the options are as said there; with target_lipschitz also
// where there is a gate (it has no finite constant) or no certificate.
class TransformerConv : public GraphConv {
 public:
  TransformerConv(Module& parent, std::string name, const TransformerConvOptions& options);

  // x: (N, in), dense or sparse; edge_features (E, options.edge_features), or undefined if that
  // is 0. Returns (N, heads * out), or (N, out) without concat.
  Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                 Mode mode) const override;
  using GraphConv::forward;

  std::int64_t in_features() const override { return options_.in; }
  std::int64_t out_features() const override {
    return options_.concat ? options_.heads * options_.out : options_.out;
  }
  const TransformerConvOptions& options() const { return options_; }

  Linear lin_key, lin_query, lin_value;
  std::optional<Linear> lin_edge, lin_skip, lin_beta;

 private:
  Tensor lipschitz_factor(const Graph& graph, const Tensor& value_weight) const;

  TransformerConvOptions options_;
};

}  // namespace lipgrad
