#include <lipgrad/models/gnn.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/graph/gated_graph_conv.h>
#include <lipgrad/graph/gatv2_conv.h>
#include <lipgrad/graph/gcn_conv.h>
#include <lipgrad/graph/transformer_conv.h>
#include <lipgrad/models/layerwise_inference.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>

namespace lipgrad {
namespace {

void check(const GnnOptions& o) {
  LIPGRAD_CHECK(o.layers >= 1, "Gnn: layers must be at least 1, got {}", o.layers);
  LIPGRAD_CHECK(o.heads >= 1 && o.hidden >= 1,
                "Gnn: heads and hidden must be at least 1, got {} and {}", o.heads, o.hidden);
  for (const auto& [name, p] : {std::pair{"dropout", o.dropout},
                                {"input_dropout", o.input_dropout},
                                {"output_dropout", o.output_dropout}})
    LIPGRAD_CHECK(p >= 0 && p <= 1, "Gnn: {} must be from 0 to 1, got {}", name, p);
  LIPGRAD_CHECK(o.initial_residual >= 0 && o.initial_residual < 1,
                "Gnn: initial_residual must be in [0, 1), got {}", o.initial_residual);
  LIPGRAD_CHECK(o.identity_map >= 0 && std::isfinite(o.identity_map),
                "Gnn: identity_map must be finite and >= 0, got {}", o.identity_map);
  LIPGRAD_CHECK(o.linear_ends || (o.initial_residual == 0 && o.identity_map == 0),
                "Gnn: initial_residual and identity_map need linear_ends: they add features of "
                "equal width");
  LIPGRAD_CHECK(o.identity_map == 0 || o.layer != GnnLayer::ggnn,
                "Gnn: layers of ggnn have no identity_map");
  LIPGRAD_CHECK(o.linear_ends || o.layer != GnnLayer::ggnn,
                "Gnn: layers of ggnn need linear_ends: they keep the width of what enters");
  LIPGRAD_CHECK(has_attention(o.layer) || (!o.attention_norm && o.heads == 1),
                "Gnn: layers of gcn and ggnn have no attention: heads must be 1, got {}, and "
                "attention_norm unset",
                o.heads);
  LIPGRAD_CHECK(takes_edge_features(o.layer) || o.edge_features == 0,
                "Gnn: only layers of gatv2 and transformer take edge features");
}

}  // namespace

bool has_attention(GnnLayer layer) {
  return layer == GnnLayer::gat || layer == GnnLayer::gatv2 || layer == GnnLayer::transformer;
}

bool takes_edge_features(GnnLayer layer) {
  return layer == GnnLayer::gatv2 || layer == GnnLayer::transformer;
}

Gnn::Gnn(const GnnOptions& options) : options_(options) { build(); }
Gnn::Gnn(Module& parent, std::string name, const GnnOptions& options)
    : Module(parent, std::move(name)), options_(options) {
  build();
}

std::unique_ptr<GraphConv> Gnn::make_conv(std::int64_t layer) {
  const GnnOptions& o = options_;
  const bool logits = !o.linear_ends && layer + 1 == o.layers;
  const std::int64_t in = layer > 0 ? o.heads * o.hidden : o.linear_ends ? o.input_width : o.in;
  const std::int64_t out = logits ? o.out : o.hidden, heads = logits ? o.out_heads : o.heads;
  const double identity_map =
      o.identity_map > 0 ? std::min(1.0, std::log1p(o.identity_map / double(layer + 1))) : 1;
  const Initializer initializer = o.spectral_init ? init::spectral() : Initializer();
  std::string name = std::to_string(layer);
  switch (o.layer) {
    case GnnLayer::gcn:
      return std::make_unique<GcnConv>(convs, std::move(name),
                                       GcnConvOptions{.in = in,
                                                      .out = out,
                                                      .identity_map = identity_map,
                                                      .weight_initializer = initializer,
                                                      .dtype = o.dtype});
    case GnnLayer::ggnn:
      return std::make_unique<GatedGraphConv>(
          convs, std::move(name), GatedGraphConvOptions{.in = in, .out = out, .dtype = o.dtype});
    case GnnLayer::gat:
      return std::make_unique<GatConv>(convs, std::move(name),
                                       GatConvOptions{.in = in,
                                                      .out = out,
                                                      .heads = heads,
                                                      .concat = !logits,
                                                      .negative_slope = o.negative_slope,
                                                      .attention_dropout = o.attention_dropout,
                                                      .norm = o.attention_norm,
                                                      .identity_map = identity_map,
                                                      .weight_initializer = initializer,
                                                      .dtype = o.dtype});
    case GnnLayer::transformer:
      return std::make_unique<TransformerConv>(
          convs, std::move(name),
          TransformerConvOptions{.in = in,
                                 .out = out,
                                 .heads = heads,
                                 .concat = !logits,
                                 .root = o.root,
                                 .beta = o.beta_gate,
                                 .edge_features = o.edge_features,
                                 .attention_dropout = o.attention_dropout,
                                 .norm = o.attention_norm,
                                 .identity_map = identity_map,
                                 .weight_initializer = initializer,
                                 .dtype = o.dtype});
    case GnnLayer::gatv2:
      return std::make_unique<Gatv2Conv>(convs, std::move(name),
                                         Gatv2ConvOptions{.in = in,
                                                          .out = out,
                                                          .heads = heads,
                                                          .concat = !logits,
                                                          .negative_slope = o.negative_slope,
                                                          .attention_dropout = o.attention_dropout,
                                                          .edge_features = o.edge_features,
                                                          .norm = o.attention_norm,
                                                          .identity_map = identity_map,
                                                          .weight_initializer = initializer,
                                                          .dtype = o.dtype});
  }
  fail("Gnn: there is no layer of kind {}", int(o.layer));
}

void Gnn::build() {
  GnnOptions& o = options_;
  check(o);
  o.norm.dtype = o.dtype;
  const std::int64_t width = o.heads * o.hidden;
  const LinearLayerOptions glorot{.weight_initializer = init::xavier_uniform(),
                                  .bias_initializer = init::zeros(),
                                  .dtype = o.dtype};
  if (o.linear_ends) {
    if (o.input_width == 0)
      o.input_width = o.initial_residual > 0 || o.identity_map > 0 ? width : o.hidden;
    input.emplace(*this, "input", o.in, o.input_width, glorot);
  }
  for (std::int64_t layer = 0; layer < o.layers; ++layer) convs_.push_back(make_conv(layer));
  const std::size_t last = convs_.size() - 1;
  for (std::size_t layer = 0; layer < convs_.size(); ++layer) {
    if (o.norm.kind != FeatureNormKind::none && (layer < last || o.last_activation))
      norm.emplace_back(width, o.norm);
    const bool learned = o.residual == Residual::weighted || o.residual == Residual::damped;
    residual_of_.push_back(
        learned && joins(layer)
            ? &residual.emplace_back(
                  width, WeightedResidualOptions{.initial = o.residual_gain.value_or(1.0) /
                                                            static_cast<double>(o.layers),
                                                 .damped = o.residual == Residual::damped,
                                                 .dtype = o.dtype})
            : nullptr);
  }
  if (o.linear_ends) output.emplace(*this, "output", width, o.out, glorot);
}

// Whether what enters the layer and its result have the same width and may be added.
bool Gnn::joins(std::size_t layer) const {
  return !(layer + 1 == convs_.size() && !options_.linear_ends) &&
         convs_[layer]->in_features() == convs_[layer]->out_features();
}

Tensor Gnn::run_layer(std::size_t layer, const Graph& graph, const Features& h, const Tensor& first,
                      const Tensor& edge_features, Mode mode) const {
  const GnnOptions& o = options_;
  Tensor f = convs_[layer]->forward(graph, dropout(h, o.dropout, mode), edge_features, mode);
  if (is_logits(layer)) return f;
  const bool ends = layer + 1 == convs_.size() && !o.last_activation;
  if (!ends) f = elu(f);
  if (first.defined()) {
    f = mul(f, 1 - o.initial_residual);  // on its own: what it is made from goes before the sum
    f = add(f, first);
  }
  if (o.residual == Residual::plain && joins(layer))
    f = add(h.dense(), f);
  else if (residual_of_[layer])
    f = residual_of_[layer]->forward(h.dense(), f);
  return ends || norm.size() == 0
             ? f
             : norm[layer].forward(f, mode, h.is_sparse() ? Tensor() : h.dense());
}

Features Gnn::enter(const Features& x, Mode mode) const {
  if (!input) return x;
  const Features dropped = dropout(x, options_.input_dropout, mode);
  const Tensor h =
      dropped.is_sparse() ? input->forward(dropped.sparse()) : input->forward(dropped.dense());
  return options_.input_activation ? elu(h) : h;
}

Tensor Gnn::leave(const Features& h, Mode mode) const {
  return output ? output->forward(dropout(h.dense(), options_.output_dropout, mode)) : h.dense();
}

Tensor Gnn::first_of(const Features& h) const {
  const double a = options_.initial_residual;
  return a > 0 ? mul(h.dense(), a) : Tensor();
}

Tensor Gnn::forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                    Mode mode) const {
  const ModuleScope scope(path());
  const GnnOptions& o = options_;
  const Tensor edges = o.edge_features > 0 ? edge_features : Tensor();
  Features features = enter(x, mode);
  const Tensor first = first_of(features);
  for (std::size_t layer = 0; layer < convs_.size(); ++layer) {
    if (o.checkpoint_layers && mode.is_train() && !features.is_sparse()) {
      const auto again = [this, layer, graph, edges, mode](Inputs in) {
        return std::vector<Tensor>{
            run_layer(layer, graph, in[0], in.size() > 1 ? in[1] : Tensor(), edges, mode)};
      };
      std::vector<Tensor> inputs{features.dense()};
      if (first.defined()) inputs.push_back(first);
      features = checkpoint(again, mode.rng(), std::move(inputs))[0];
    } else {
      features = run_layer(layer, graph, features, first, edges, mode);
    }
  }
  return leave(features, mode);
}

// Whether a layer's row depends on the edges into the node and the rows at their ends alone.
bool Gnn::is_local() const {
  const GnnOptions& o = options_;
  if (o.layer == GnnLayer::gcn) return false;
  if (o.attention_norm &&
      (o.layer == GnnLayer::transformer || o.attention_norm->target_lipschitz ||
       o.attention_norm->scope.value_or(NormScope::neighbourhood) == NormScope::global))
    return false;
  switch (o.norm.kind) {
    case FeatureNormKind::none:
    case FeatureNormKind::layer_norm:
    case FeatureNormKind::center_norm:
    case FeatureNormKind::node_norm:
    case FeatureNormKind::batch_norm:  // by its running moments
    case FeatureNormKind::message_norm:
      return true;
    default:
      return false;
  }
}

Tensor Gnn::evaluate_by_blocks(const Graph& graph, const Features& x, const Tensor& edge_features,
                               std::int64_t block_nodes) const {
  LIPGRAD_CHECK(is_local(),
                "Gnn: cannot be evaluated by blocks of nodes: its layers, its norm of features or "
                "that of attention see more of the graph than a node's neighbours; use forward()");
  const ModuleScope scope(path());
  const NoGrad off;
  const Tensor edges = options_.edge_features > 0 ? edge_features : Tensor();
  Features features = enter(x, Mode::eval());
  const Tensor first = first_of(features);
  for (std::size_t layer = 0; layer < convs_.size(); ++layer)
    features = layer_by_blocks(
        [&](const Graph& part, const Features& h, const Tensor& h0, const Tensor& e) {
          return run_layer(layer, part, h, h0, e, Mode::eval());
        },
        graph, features, first, edges, block_nodes);
  return leave(features, Mode::eval());
}

std::vector<OptimizerGroup> gnn_groups(const GnnGroupOptions& options) {
  // Whether one of the names in the path is this one, as "conv" in "encoder.conv.3.att_src".
  const auto has = [](const std::string& path, std::string_view name) {
    for (std::size_t at = 0; (at = path.find(name, at)) != std::string::npos; at += name.size()) {
      const std::size_t end = at + name.size();
      if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
    }
    return false;
  };
  const auto scales = [has](const std::string& path, const Parameter&) {
    for (const char* name : {"att", "att_src", "att_dst", "norm", "residual"})
      if (has(path, name)) return true;
    return false;
  };
  const auto layers = [has](const std::string& path, const Parameter&) {
    return has(path, "conv");
  };
  return {{scales, options.scale_weight_decay, options.scale_lr_factor},
          {layers, options.layer_weight_decay}};
}

}  // namespace lipgrad
