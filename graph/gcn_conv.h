#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/graph/graph_conv.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

struct GcnConvOptions {
  std::int64_t in = 0;   // features of a node that come in
  std::int64_t out = 0;  // features that go out
  bool self_loops = true;
  // beta in (0, 1]: features are projected by (1 - beta) I + beta lin.weight (identity_map.h),
  // which asks for in = out.
  double identity_map = 1;
  Initializer weight_initializer{};  // unset: Glorot uniform
  bool bias = true;
  DType dtype = f32;
};

// The graph convolution of Kipf and Welling, "Semi-Supervised Classification with Graph
// Convolutional Networks", ICLR 2017, equation 2, without its activation:
//
//   y = P x lin.weight^T + bias,   P = D^-1/2 (A + I) D^-1/2
//
// with D the in-degrees of A + I. P is graph.with_self_loops().normalized_adjacency(), computed
// once for a graph; without self_loops that of the graph as it is. The narrower side is multiplied
// by P. Parameters, by name and initialiser those of GCNConv in PyTorch Geometric: lin.weight (out,
// in), Glorot uniform, and bias (out), zeros. Where every edge has its reverse the l2 Lipschitz
// constant is at most |lin.weight|_2, as |P|_2 <= 1. Error unless in, out >= 1 and the options are
// as said there.
class GcnConv : public GraphConv {
 public:
  GcnConv(Module& parent, std::string name, const GcnConvOptions& options);

  // x: (N, in), dense or sparse. Returns (N, out).
  using GraphConv::forward;
  Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                 Mode mode) const override;
  std::int64_t in_features() const override { return options_.in; }
  std::int64_t out_features() const override { return options_.out; }

  const GcnConvOptions& options() const { return options_; }

  Linear lin;
  std::optional<Parameter> bias;

 private:
  GcnConvOptions options_;
};

}  // namespace lipgrad
