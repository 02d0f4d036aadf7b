#include <lipgrad/graph/gated_graph_conv.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/message_passing.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/matmul.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

const GatedGraphConvOptions& checked(const GatedGraphConvOptions& o) {
  LIPGRAD_CHECK(o.in >= 1 && o.in <= o.out,
                "GatedGraphConv: in must be from 1 to out, got {} and out = {}", o.in, o.out);
  LIPGRAD_CHECK(o.steps >= 1, "GatedGraphConv: steps must be at least 1, got {}", o.steps);
  return o;
}

}  // namespace

GatedGraphConv::GatedGraphConv(Module& parent, std::string name,
                               const GatedGraphConvOptions& options)
    : GraphConv(parent, std::move(name)),
      weight(*this, "weight",
             {checked(options).share_weight ? 1 : options.steps, options.out, options.out},
             init::fan_uniform(options.out), options.dtype),
      rnn(*this, "rnn", options.out, options.out, {.bias = options.bias, .dtype = options.dtype}),
      options_(options) {}

Tensor GatedGraphConv::forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                               Mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(!edge_features.defined(), "GatedGraphConv: takes no features of edges, got {}",
                edge_features.shape());
  const GatedGraphConvOptions& o = options_;
  LIPGRAD_CHECK(x.rows() == graph.num_nodes() && x.cols() == o.in,
                "GatedGraphConv: features must be ({}, {}) for this graph and layer, got ({}, {})",
                graph.num_nodes(), o.in, x.rows(), x.cols());
  Tensor h = x.to_dense();
  if (o.in < o.out) h = concat({h, zeros({x.rows(), o.out - o.in}, h.dtype(), h.device())}, 1);
  for (std::int64_t step = 0; step < o.steps; ++step) {
    const std::int64_t which = o.share_weight ? 0 : step;
    const Tensor w = squeeze(slice(weight, 0, which, which + 1), 0);
    h = rnn.forward(aggregate(graph, matmul(h, w)), h);
  }
  return h;
}

}  // namespace lipgrad
