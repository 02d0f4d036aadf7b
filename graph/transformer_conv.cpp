#include <lipgrad/graph/transformer_conv.h>

#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/dot_attention.h>
#include <lipgrad/graph/identity_map.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/spectral_norm.h>

namespace lipgrad {
namespace {

const TransformerConvOptions& checked(const TransformerConvOptions& o) {
  LIPGRAD_CHECK(o.in >= 1 && o.out >= 1 && o.heads >= 1,
                "TransformerConv: in, out and heads must be at least 1, got {}, {} and {}", o.in,
                o.out, o.heads);
  LIPGRAD_CHECK(o.edge_features >= 0, "TransformerConv: edge_features must be >= 0, got {}",
                o.edge_features);
  LIPGRAD_CHECK(o.attention_dropout >= 0 && o.attention_dropout <= 1,
                "TransformerConv: attention_dropout must be from 0 to 1, got {}",
                o.attention_dropout);
  LIPGRAD_CHECK(o.root || !o.beta, "TransformerConv: the gate beta needs the root term");
  check_identity_map("TransformerConv", o.identity_map, o.in, o.heads * o.out);
  if (o.norm && o.norm->target_lipschitz) {
    LIPGRAD_CHECK(*o.norm->target_lipschitz > 0 && std::isfinite(*o.norm->target_lipschitz),
                  "TransformerConv: target_lipschitz must be positive and finite, got {}",
                  *o.norm->target_lipschitz);
    LIPGRAD_CHECK(!o.beta,
                  "TransformerConv: with the gate beta there is no Lipschitz constant to bound");
  }
  return o;
}

LinearLayerOptions projection(const TransformerConvOptions& o, bool bias) {
  return {.bias = bias, .weight_initializer = o.weight_initializer, .dtype = o.dtype};
}

// (n, n) with ones on the diagonal.
Tensor identity(std::int64_t n, const Tensor& like) {
  std::vector<double> x(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i * (n + 1))] = 1;
  return from_vector({n, n}, x).to(like.dtype()).to(like.device());
}

Tensor project(const Features& x, const Tensor& weight, const std::optional<Parameter>& bias) {
  return linear(x, weight, bias ? bias->value() : Tensor());
}

}  // namespace

TransformerConv::TransformerConv(Module& parent, std::string name,
                                 const TransformerConvOptions& options)
    : GraphConv(parent, std::move(name)),
      lin_key(*this, "lin_key", options.in, checked(options).heads * options.out,
              projection(options, options.bias)),
      lin_query(*this, "lin_query", options.in, options.heads * options.out,
                projection(options, options.bias)),
      lin_value(*this, "lin_value", options.in, options.heads * options.out,
                projection(options, options.bias)),
      options_(options) {
  if (options.edge_features > 0)
    lin_edge.emplace(*this, "lin_edge", options.edge_features, options.heads * options.out,
                     projection(options, false));
  if (options.root)
    lin_skip.emplace(*this, "lin_skip", options.in, out_features(),
                     projection(options, options.bias));
  if (options.beta)
    lin_beta.emplace(*this, "lin_beta", 3 * out_features(), 1,
                     LinearLayerOptions{.bias = false, .dtype = options.dtype});
}

// What the output is multiplied by for norm.target_lipschitz.
Tensor TransformerConv::lipschitz_factor(const Graph& graph, const Tensor& value_weight) const {
  const LipschitzNorm& norm = *options_.norm;
  const std::optional<double> constant =
      certificate(graph, ScoreKind::dot_uvw, norm, options_.self_loops, options_.out);
  LIPGRAD_CHECK(constant.has_value(),
                "TransformerConv: target_lipschitz: no constant is known for this LipschitzNorm");
  Tensor all = mul(
      spectral_norm_of(concat({lin_query.weight.value(), lin_key.weight.value(), value_weight}, 0)),
      *constant);
  if (lin_skip) all = add(all, spectral_norm_of(lin_skip->weight));
  return div(*norm.target_lipschitz, norm.detach ? all.detach() : all);
}

Tensor TransformerConv::forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                                Mode mode) const {
  const ModuleScope scope(path());
  const std::int64_t nodes = graph.num_nodes(), heads = options_.heads, out = options_.out,
                     width = heads * out, fe = options_.edge_features;
  LIPGRAD_CHECK(x.rows() == nodes && x.cols() == options_.in,
                "TransformerConv: features must be ({}, {}) for this graph and layer, got ({}, {})",
                nodes, options_.in, x.rows(), x.cols());
  LIPGRAD_CHECK(edge_features.defined() == (fe > 0),
                "TransformerConv: the layer was made for {} features of edges and {}", fe,
                edge_features.defined() ? "gets some" : "gets none");
  const auto by_head = [&](const Tensor& rows) { return reshape(rows, {nodes, heads, out}); };
  const Tensor value_weight = identity_map(lin_value.weight, options_.identity_map);
  const Tensor q = project(x, lin_query.weight, lin_query.bias),
               k = by_head(project(x, lin_key.weight, lin_key.bias)),
               v = by_head(project(x, value_weight, lin_value.bias));
  DotAttentionOptions attention;
  attention.self_loops = options_.self_loops;
  attention.dropout = options_.attention_dropout;
  attention.mean_heads = !options_.concat;

  Tensor edge_weight, edge_bound;
  if (fe > 0) {
    LIPGRAD_CHECK(edge_features.rank() == 2 && edge_features.size(0) == graph.num_edges() &&
                      edge_features.size(1) == fe,
                  "TransformerConv: features of edges must be ({}, {}), got {}", graph.num_edges(),
                  fe, edge_features.shape());
    edge_weight = reshape(lin_edge->weight.value(), {heads, out, fe});
    if (options_.norm && graph.num_edges() > 0)
      edge_bound =
          mul(row_norms(reshape(edge_weight, {heads, out * fe})), max(row_norms(edge_features)));
  }
  const Tensor scale = options_.norm ? lipschitz_scale(graph, by_head(q), k, v, *options_.norm,
                                                       options_.self_loops, edge_bound)
                                     : Tensor();
  Tensor y;
  if (fe == 0) {
    y = dot_attention(graph, by_head(q), k, v, scale, attention, mode);
  } else {
    // W_e of all heads as blocks of one (H D, H Fe) matrix: dense products of rows of nodes.
    const Tensor blocks = reshape(mul(reshape(edge_weight, {heads, out, 1, fe}),
                                      reshape(identity(heads, edge_weight), {heads, 1, heads, 1})),
                                  {width, heads * fe});
    const Tensor qe = reshape(linear(q, transpose(blocks)), {nodes, heads, fe});
    const EdgeAttention both =
        dot_attention(graph, by_head(q), k, v, scale, qe, edge_features, attention, mode);
    const Tensor sums = reshape(both.edge_sum, {nodes, heads * fe});
    const Tensor of_sums = options_.concat
                               ? blocks
                               : mul(reshape(permute(edge_weight, {1, 0, 2}), {out, heads * fe}),
                                     1 / static_cast<double>(heads));
    y = add(both.out, linear(sums, of_sums));
  }
  if (lin_skip) {
    const Tensor root = project(x, lin_skip->weight, lin_skip->bias);
    if (lin_beta) {
      // <w, [y, root, y - root]> without the concatenation.
      const auto w = split(lin_beta->weight.value(), {y.size(1), y.size(1), y.size(1)}, 1);
      const Tensor gate = sigmoid(add(linear(y, add(w[0], w[2])), linear(root, sub(w[1], w[2]))));
      y = add(y, mul(gate, sub(root, y)));
    } else {
      y = add(y, root);
    }
  }
  if (options_.norm && options_.norm->target_lipschitz)
    y = mul(y, lipschitz_factor(graph, value_weight));
  return y;
}

}  // namespace lipgrad
