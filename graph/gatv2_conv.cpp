#include <lipgrad/graph/gatv2_conv.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/identity_map.h>
#include <lipgrad/graph/segment.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/spectral_norm.h>

namespace lipgrad {
namespace {

const Gatv2ConvOptions& checked(const Gatv2ConvOptions& o) {
  LIPGRAD_CHECK(o.in >= 1 && o.out >= 1 && o.heads >= 1 && o.edge_features >= 0,
                "Gatv2Conv: in, out and heads must be at least 1 and edge_features 0 or more, got "
                "{}, {}, {} and {}",
                o.in, o.out, o.heads, o.edge_features);
  LIPGRAD_CHECK(o.attention_dropout >= 0 && o.attention_dropout <= 1,
                "Gatv2Conv: attention_dropout must be from 0 to 1, got {}", o.attention_dropout);
  if (o.norm) vector_score_norm("Gatv2Conv", ScoreKind::gatv2, *o.norm);
  LIPGRAD_CHECK(!o.norm || !o.norm->target_lipschitz || std::abs(o.negative_slope) <= 1,
                "Gatv2Conv: target_lipschitz needs a negative_slope from -1 to 1, got {}: the "
                "certificate takes LeakyReLU's constant for 1",
                o.negative_slope);
  LIPGRAD_CHECK(!o.norm || !o.norm->target_lipschitz || o.edge_features == 0,
                "Gatv2Conv: with features of edges there is no certificate, which target_lipschitz "
                "needs; got {} of them",
                o.edge_features);
  check_identity_map("Gatv2Conv", o.identity_map, o.in, o.heads * o.out);
  return o;
}

LinearLayerOptions projection(const Gatv2ConvOptions& o, bool bias) {
  return {
      .bias = bias,
      .weight_initializer = o.weight_initializer ? o.weight_initializer : init::xavier_uniform(),
      .bias_initializer = init::zeros(),
      .dtype = o.dtype};
}

}  // namespace

Tensor loop_features(const Graph& graph, const Tensor& edge_features) {
  if (graph.num_self_loops() == 0) return segment_mean(edge_features, graph.pattern().offsets());
  // 1 for edges that count; over the number of those into the same node.
  const Graph host = graph.to(cpu_device);
  const std::int64_t* offsets = host.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = host.pattern().columns().data<std::int32_t>();
  Tensor share = zeros({graph.num_edges(), 1}, edge_features.dtype());
  visit_float("loop_features", share.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = share.mutable_data<T>();
    for (std::int64_t i = 0; i < graph.num_nodes(); ++i) {
      const auto loops = std::count(source + offsets[i], source + offsets[i + 1], i);
      const std::int64_t count = offsets[i + 1] - offsets[i] - loops;
      for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e)
        if (source[e] != i) to[e] = T(1) / static_cast<T>(count);
    }
  });
  return segment_sum(mul(edge_features, share.to(edge_features.device())),
                     graph.pattern().offsets());
}

Gatv2Conv::Gatv2Conv(Module& parent, std::string name, const Gatv2ConvOptions& options)
    : GraphConv(parent, std::move(name)),
      lin_l(*this, "lin_l", checked(options).in, options.heads * options.out,
            projection(options, options.bias)),
      att(*this, "att", {options.heads, options.out}, init::xavier_uniform(), options.dtype),
      options_(options) {
  if (!options.share_weights)
    lin_r.emplace(*this, "lin_r", options.in, options.heads * options.out,
                  projection(options, options.bias));
  if (options.edge_features > 0)
    lin_edge.emplace(
        *this, "lin_edge", options.edge_features, options.heads * options.out,
        LinearLayerOptions{
            .bias = false, .weight_initializer = init::xavier_uniform(), .dtype = options.dtype});
  if (options.bias)
    bias.emplace(*this, "bias", Shape{out_features()}, init::zeros(), options.dtype);
}

Tensor Gatv2Conv::forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                          Mode mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rows() == graph.num_nodes() && x.cols() == options_.in,
                "Gatv2Conv: features must be ({}, {}) for this graph and layer, got ({}, {})",
                graph.num_nodes(), options_.in, x.rows(), x.cols());
  LIPGRAD_CHECK(edge_features.defined() == (options_.edge_features > 0),
                "Gatv2Conv: made for {} features of edges, got {}", options_.edge_features,
                edge_features.defined() ? edge_features.shape() : Shape{});
  Tensor weight = identity_map(lin_l.weight, options_.identity_map), weight_r;
  if (lin_r) weight_r = identity_map(lin_r->weight, options_.identity_map);
  std::optional<LipschitzNorm> norm = options_.norm;
  Tensor scale;
  if (norm && norm->target_lipschitz) {
    const double certificate = gat_certificate(graph, options_.self_loops, ScoreKind::gatv2, *norm);
    Tensor size =
        mul(spectral_norm_of(concat({weight, lin_r ? weight_r : weight}, 0)), certificate);
    if (norm->detach) size = size.detach();
    scale = div(*norm->target_lipschitz, size);
    norm->target_lipschitz.reset();
  }
  const auto scaled = [&](const Tensor& t) { return scale.defined() ? mul(t, scale) : t; };
  const auto project = [&](const Tensor& w, const Linear& lin) {
    return linear(x, scaled(w), lin.bias ? scaled(lin.bias->value()) : Tensor());
  };
  const Tensor right = project(weight, lin_l), left = lin_r ? project(weight_r, *lin_r) : right;
  EdgeFeatures edges;
  if (edge_features.defined()) {
    edges.value = edge_features;
    edges.weight = lin_edge->weight;
    if (options_.self_loops) edges.loop = loop_features(graph, edge_features);
  }
  return gatv2_attention(graph, left, right, att, bias ? bias->value() : Tensor(),
                         {.negative_slope = options_.negative_slope,
                          .self_loops = options_.self_loops,
                          .dropout = options_.attention_dropout,
                          .mean_heads = !options_.concat,
                          .norm = norm},
                         mode, edges);
}

}  // namespace lipgrad
