#include <lipgrad/graph/feature_norm.h>

#include <utility>

#include <lipgrad/graph/pair_norm.h>

namespace lipgrad {

FeatureNorm::FeatureNorm(Module& parent, std::string name, std::int64_t features,
                         const FeatureNormOptions& options)
    : Module(parent, std::move(name)), options_(options) {
  switch (options.kind) {
    case FeatureNormKind::layer_norm:
      layer_norm.emplace(*this, "layer_norm", features, LayerNormOptions{.dtype = options.dtype});
      break;
    case FeatureNormKind::graph_layer_norm:
      graph_layer_norm.emplace(*this, "graph_layer_norm", features,
                               GraphLayerNormOptions{.dtype = options.dtype});
      break;
    case FeatureNormKind::center_norm:
      center_norm.emplace(*this, "center_norm", features,
                          CenterNormOptions{.dtype = options.dtype});
      break;
    default:
      break;
  }
}

Tensor FeatureNorm::forward(const Tensor& x, Mode, const Tensor&) const {
  const ModuleScope scope(path());
  const auto pair = [&](PairNormKind kind) {
    return pair_norm(x, {.kind = kind, .scale = options_.scale});
  };
  switch (options_.kind) {
    case FeatureNormKind::pair_norm:
      return pair(PairNormKind::pn);
    case FeatureNormKind::pair_norm_si:
      return pair(PairNormKind::pn_si);
    case FeatureNormKind::pair_norm_scs:
      return pair(PairNormKind::pn_scs);
    case FeatureNormKind::layer_norm:
      return layer_norm->forward(x);
    case FeatureNormKind::graph_layer_norm:
      return graph_layer_norm->forward(x);
    case FeatureNormKind::center_norm:
      return center_norm->forward(x);
    case FeatureNormKind::none:
      break;
  }
  return x;
}

}  // namespace lipgrad
