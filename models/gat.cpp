#include <lipgrad/models/gat.h>

#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>

namespace lipgrad {
namespace {

void check(const GatOptions& o) {
  LIPGRAD_CHECK(o.layers >= 1, "Gat: layers must be at least 1, got {}", o.layers);
  for (const auto& [name, p] : {std::pair{"dropout", o.dropout},
                                {"input_dropout", o.input_dropout},
                                {"output_dropout", o.output_dropout}})
    LIPGRAD_CHECK(p >= 0 && p <= 1, "Gat: {} must be from 0 to 1, got {}", name, p);
  LIPGRAD_CHECK(o.initial_residual >= 0 && o.initial_residual < 1,
                "Gat: initial_residual must be in [0, 1), got {}", o.initial_residual);
  LIPGRAD_CHECK(o.identity_map >= 0 && std::isfinite(o.identity_map),
                "Gat: identity_map must be finite and >= 0, got {}", o.identity_map);
  LIPGRAD_CHECK(o.linear_ends || (o.initial_residual == 0 && o.identity_map == 0),
                "Gat: initial_residual and identity_map need linear_ends: they add features of "
                "equal width");
}

std::optional<LipschitzNorm> attention_norm(const GatOptions& o) {
  if (o.attention_norm == AttentionNorm::none) return {};
  LipschitzNorm norm;
  if (o.attention_norm == AttentionNorm::lipschitz_reference)
    norm = LipschitzNorm::reference_code_2022(ScoreKind::gat);
  norm.kappa = o.kappa;
  return norm;
}

}  // namespace

Gat::Gat(const GatOptions& options) : options_(options) { build(); }
Gat::Gat(Module& parent, std::string name, const GatOptions& options)
    : Module(parent, std::move(name)), options_(options) {
  build();
}

void Gat::build() {
  GatOptions& o = options_;
  check(o);
  const std::int64_t width = o.heads * o.hidden;
  const LinearLayerOptions glorot{.weight_initializer = init::xavier_uniform(),
                                  .bias_initializer = init::zeros(),
                                  .dtype = o.dtype};
  if (o.linear_ends) {
    if (o.input_width == 0)
      o.input_width = o.initial_residual > 0 || o.identity_map > 0 ? width : o.hidden;
    input.emplace(*this, "input", o.in, o.input_width, glorot);
  }
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const bool logits = !o.linear_ends && layer + 1 == o.layers;
    const std::int64_t entering = layer > 0 ? width : o.linear_ends ? o.input_width : o.in;
    conv.emplace_back(GatConvOptions{
        .in = entering,
        .out = logits ? o.out : o.hidden,
        .heads = logits ? o.out_heads : o.heads,
        .concat = !logits,
        .negative_slope = o.negative_slope,
        .attention_dropout = o.attention_dropout,
        .norm = attention_norm(o),
        .identity_map =
            o.identity_map > 0 ? std::min(1.0, std::log1p(o.identity_map / double(layer + 1))) : 1,
        .weight_initializer = o.spectral_init ? init::spectral() : Initializer(),
        .dtype = o.dtype});
  }
  const std::size_t last = conv.size() - 1;
  for (std::size_t layer = 0; layer < conv.size(); ++layer) {
    if (o.norm != FeatureNormKind::none && (layer < last || o.last_activation))
      norm.emplace_back(
          width, FeatureNormOptions{.kind = o.norm, .scale = o.norm_scale, .dtype = o.dtype});
    if (o.residual == Residual::weighted || o.residual == Residual::damped)
      if (joins(layer))
        residual.emplace_back(
            width, WeightedResidualOptions{
                       .initial = o.residual_gain.value_or(1.0) / static_cast<double>(o.layers),
                       .damped = o.residual == Residual::damped,
                       .dtype = o.dtype});
  }
  if (o.linear_ends) output.emplace(*this, "output", width, o.out, glorot);
}

// Whether what enters the layer and its result have the same width.
bool Gat::joins(std::size_t layer) const {
  const GatConvOptions& o = conv[layer].options();
  return o.concat && o.in == o.heads * o.out;
}

Tensor Gat::forward(const Graph& graph, const Features& x, Mode mode) const {
  const ModuleScope scope(path());
  const GatOptions& o = options_;
  Features features = x;
  if (input) {
    const Features dropped = dropout(x, o.input_dropout, mode);
    const Tensor h =
        dropped.is_sparse() ? input->forward(dropped.sparse()) : input->forward(dropped.dense());
    features = o.input_activation ? elu(h) : h;
  }
  const Tensor first =
      o.initial_residual > 0 ? mul(features.dense(), o.initial_residual) : Tensor();
  std::size_t weighted = 0;
  for (std::size_t layer = 0; layer < conv.size(); ++layer) {
    const bool logits = !output && layer + 1 == conv.size();
    const bool ends = layer + 1 == conv.size() && !o.last_activation;
    Tensor f = conv[layer].forward(graph, dropout(features, o.dropout, mode), mode);
    if (logits) return f;
    if (!ends) f = elu(f);
    if (first.defined()) f = add(mul(f, 1 - o.initial_residual), first);
    if (o.residual != Residual::none && joins(layer))
      f = o.residual == Residual::plain ? add(features.dense(), f)
                                        : residual[weighted++].forward(features.dense(), f);
    features = ends || norm.size() == 0 ? f : norm[layer].forward(f, mode);
  }
  return output->forward(dropout(features.dense(), o.output_dropout, mode));
}

std::vector<OptimizerGroup> gat_groups(const GatGroupOptions& options) {
  // Whether one of the names in the path is this one, as "conv" in "encoder.conv.3.att_src".
  const auto has = [](const std::string& path, std::string_view name) {
    for (std::size_t at = 0; (at = path.find(name, at)) != std::string::npos; at += name.size()) {
      const std::size_t end = at + name.size();
      if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
    }
    return false;
  };
  const auto scales = [has](const std::string& path, const Parameter&) {
    return has(path, "att_src") || has(path, "att_dst") || has(path, "norm") ||
           has(path, "residual");
  };
  const auto layers = [has](const std::string& path, const Parameter&) {
    return has(path, "conv");
  };
  return {{scales, options.scale_weight_decay, options.scale_lr_factor},
          {layers, options.layer_weight_decay}};
}

}  // namespace lipgrad
