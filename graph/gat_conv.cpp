#include <lipgrad/graph/gat_conv.h>

#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/identity_map.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/spectral_norm.h>

namespace lipgrad {
namespace {

const GatConvOptions& checked(const GatConvOptions& o) {
  LIPGRAD_CHECK(o.in >= 1 && o.out >= 1 && o.heads >= 1,
                "GatConv: in, out and heads must be at least 1, got {}, {} and {}", o.in, o.out,
                o.heads);
  LIPGRAD_CHECK(o.attention_dropout >= 0 && o.attention_dropout <= 1,
                "GatConv: attention_dropout must be from 0 to 1, got {}", o.attention_dropout);
  if (o.norm) vector_score_norm("GatConv", ScoreKind::gat, *o.norm);
  LIPGRAD_CHECK(!o.norm || !o.norm->target_lipschitz || std::abs(o.negative_slope) <= 1,
                "GatConv: target_lipschitz needs a negative_slope from -1 to 1, got {}: the "
                "certificate takes LeakyReLU's constant for 1",
                o.negative_slope);
  check_identity_map("GatConv", o.identity_map, o.in, o.heads * o.out);
  return o;
}

}  // namespace

GatConv::GatConv(Module& parent, std::string name, const GatConvOptions& options)
    : GraphConv(parent, std::move(name)),
      lin(*this, "lin", options.in, checked(options).heads * options.out,
          {.bias = false,
           .weight_initializer =
               options.weight_initializer ? options.weight_initializer : init::xavier_uniform(),
           .dtype = options.dtype}),
      att_src(*this, "att_src", {options.heads, options.out}, init::xavier_uniform(),
              options.dtype),
      att_dst(*this, "att_dst", {options.heads, options.out}, init::xavier_uniform(),
              options.dtype),
      options_(options) {
  if (options.bias)
    bias.emplace(*this, "bias", Shape{(options.concat ? options.heads : 1) * options.out},
                 init::zeros(), options.dtype);
}

Tensor GatConv::forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                        Mode mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rows() == graph.num_nodes() && x.cols() == options_.in,
                "GatConv: features must be ({}, {}) for this graph and layer, got ({}, {})",
                graph.num_nodes(), options_.in, x.rows(), x.cols());
  LIPGRAD_CHECK(!edge_features.defined(), "GatConv: takes no edge features, got {}",
                edge_features.shape());
  Tensor weight = identity_map(lin.weight, options_.identity_map);
  std::optional<LipschitzNorm> norm = options_.norm;
  if (norm && norm->target_lipschitz) {
    const double certificate = gat_certificate(graph, options_.self_loops, ScoreKind::gat, *norm);
    Tensor size = mul(spectral_norm_of(weight), certificate);
    if (norm->detach) size = size.detach();
    weight = mul(weight, div(*norm->target_lipschitz, size));
    norm->target_lipschitz.reset();
  }
  return gat_attention(graph, linear(x, weight), att_src, att_dst, bias ? bias->value() : Tensor(),
                       {.negative_slope = options_.negative_slope,
                        .self_loops = options_.self_loops,
                        .dropout = options_.attention_dropout,
                        .mean_heads = !options_.concat,
                        .norm = norm},
                       mode);
}

}  // namespace lipgrad
