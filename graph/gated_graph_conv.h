#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/graph/graph_conv.h>
#include <lipgrad/ops/gru_cell.h>

namespace lipgrad {

struct GatedGraphConvOptions {
  std::int64_t in = 0;   // features of a node that come in, at most as many as go out
  std::int64_t out = 0;  // features that go out
  std::int64_t steps = 1;
  bool share_weight = false;  // one W for all steps, else one for each
  bool bias = true;           // of the recurrent unit
  DType dtype = f32;
};

// Gated graph neural network (Li, Tarlow, Brockschmidt, Zemel, "Gated Graph Sequence Neural
// Networks", ICLR 2016): from the features, followed by zeros up to the width out,
//
//   h_i <- GRU(sum_{j -> i} h_j W_s, h_i)      for each step s
//
// over the edges as they are (no self-loops are added). Parameters, by name and initialiser those
// of GatedGraphConv in PyTorch Geometric: weight (steps, out, out), or (1, out, out) with
// share_weight, uniform in +- 1 / sqrt(out); rnn.weight_ih, rnn.weight_hh, rnn.bias_ih,
// rnn.bias_hh, see GruCell, shared by all steps. Sums over edges are not divided: no Lipschitz
// constant holds for all graphs. Error unless 1 <= in <= out and steps >= 1.
class GatedGraphConv : public GraphConv {
 public:
  GatedGraphConv(Module& parent, std::string name, const GatedGraphConvOptions& options);

  // x: (N, in), dense or sparse (which becomes dense). Returns (N, out).
  using GraphConv::forward;
  Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                 Mode mode) const override;
  std::int64_t in_features() const override { return options_.in; }
  std::int64_t out_features() const override { return options_.out; }

  const GatedGraphConvOptions& options() const { return options_; }

  Parameter weight;
  GruCell rnn;

 private:
  GatedGraphConvOptions options_;
};

}  // namespace lipgrad
