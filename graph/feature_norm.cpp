#include <lipgrad/graph/feature_norm.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/node_norm.h>
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
    case FeatureNormKind::graph_norm:
      graph_norm.emplace(*this, "graph_norm", features, GraphNormOptions{.dtype = options.dtype});
      break;
    case FeatureNormKind::batch_norm:
      batch_norm.emplace(*this, "batch_norm", features, BatchNormOptions{.dtype = options.dtype});
      break;
    case FeatureNormKind::group_norm:
      group_norm.emplace(
          *this, "group_norm", features,
          DiffGroupNormOptions{
              .groups = options.groups, .lambda = options.lambda, .dtype = options.dtype});
      break;
    case FeatureNormKind::message_norm:
      message_norm.emplace(*this, "message_norm",
                           MessageNormOptions{.scale = options.scale, .dtype = options.dtype});
      break;
    default:
      break;
  }
}

Tensor FeatureNorm::forward(const Tensor& x, Mode mode, const Tensor& entering) const {
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
    case FeatureNormKind::node_norm:
      return node_norm(x, options_.p);
    case FeatureNormKind::mean_norm:
      return mean_norm(x);
    case FeatureNormKind::graph_norm:
      return graph_norm->forward(x);
    case FeatureNormKind::batch_norm:
      return batch_norm->forward(x, mode);
    case FeatureNormKind::group_norm:
      return group_norm->forward(x, mode);
    case FeatureNormKind::message_norm:
      LIPGRAD_CHECK(entering.defined(), "FeatureNorm: MessageNorm needs what entered the layer");
      return message_norm->forward(x, entering);
    case FeatureNormKind::none:
      break;
  }
  return x;
}

}  // namespace lipgrad
