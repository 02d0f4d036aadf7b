#include <lipgrad/graph/gcn_conv.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/identity_map.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/spmm.h>

namespace lipgrad {
namespace {

const GcnConvOptions& checked(const GcnConvOptions& o) {
  LIPGRAD_CHECK(o.in >= 1 && o.out >= 1, "GcnConv: in and out must be at least 1, got {} and {}",
                o.in, o.out);
  check_identity_map("GcnConv", o.identity_map, o.in, o.out);
  return o;
}

}  // namespace

GcnConv::GcnConv(Module& parent, std::string name, const GcnConvOptions& options)
    : GraphConv(parent, std::move(name)),
      lin(*this, "lin", options.in, checked(options).out,
          {.bias = false,
           .weight_initializer =
               options.weight_initializer ? options.weight_initializer : init::xavier_uniform(),
           .dtype = options.dtype}),
      options_(options) {
  if (options.bias) bias.emplace(*this, "bias", Shape{options.out}, init::zeros(), options.dtype);
}

Tensor GcnConv::forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                        Mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(!edge_features.defined(), "GcnConv: takes no features of edges, got {}",
                edge_features.shape());
  LIPGRAD_CHECK(x.rows() == graph.num_nodes() && x.cols() == options_.in,
                "GcnConv: features must be ({}, {}) for this graph and layer, got ({}, {})",
                graph.num_nodes(), options_.in, x.rows(), x.cols());
  const CsrMatrix p =
      (options_.self_loops ? graph.with_self_loops() : graph).normalized_adjacency(x.dtype());
  const Tensor weight = identity_map(lin.weight, options_.identity_map);
  const Tensor shift = bias ? bias->value() : Tensor();
  // A wider result is projected last: what is gathered along the edges stays narrow.
  if (!x.is_sparse() && options_.out > options_.in)
    return linear(spmm(p, x.dense()), weight, shift);
  const Tensor y = spmm(p, linear(x, weight));
  return shift.defined() ? add(y, shift) : y;
}

}  // namespace lipgrad
