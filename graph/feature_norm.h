#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/random.h>
#include <lipgrad/graph/graph_layer_norm.h>
#include <lipgrad/graph/graph_norm.h>
#include <lipgrad/graph/group_norm.h>
#include <lipgrad/graph/message_norm.h>
#include <lipgrad/ops/batch_norm.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

// Norms of the features of a graph's nodes, by what divides them and what is subtracted.
enum class FeatureNormKind : std::uint8_t {
  none,
  pair_norm,         // see pair_norm.h
  pair_norm_si,      // its variant that scales each node by itself
  pair_norm_scs,     // its variant that scales and centres at once
  layer_norm,        // of each node
  graph_layer_norm,  // over all nodes of the graph together
  center_norm,       // of each node: centred only, a linear map
  node_norm,         // of each node: divided by the p-th root of its deviation
  mean_norm,         // the mean of all nodes subtracted, a linear map
  graph_norm,        // of each feature over the nodes, with a learned part of the mean subtracted
  batch_norm,        // of each feature over the nodes, by running moments in evaluation
  group_norm,        // differentiable group normalisation
  message_norm,      // as long as what entered the layer
};

struct FeatureNormOptions {
  FeatureNormKind kind = FeatureNormKind::none;
  double scale = 1;          // of PairNorm; of MessageNorm at first
  double p = 2;              // of NodeNorm
  std::int64_t groups = 10;  // of group normalisation
  double lambda = 0.01;      // of group normalisation
  DType dtype = f32;
};

// One of these norms for x (N, features). Parameters and buffers are those of the norm's own layer,
// below the name of the kind: "batch_norm.weight"; PairNorm, NodeNorm and MeanNorm have none.
// Sources are where each is declared. Error where its own layer or function has one: a scale of
// PairNorm not above 0, CenterNorm of one feature.
class FeatureNorm : public Module {
 public:
  FeatureNorm(Module& parent, std::string name, std::int64_t features,
              const FeatureNormOptions& options);

  // The mode decides which statistics a norm uses that keeps some (BatchNorm). `entering` (N, any)
  // is what entered the layer whose result x is; MessageNorm needs it, others do not look at it.
  Tensor forward(const Tensor& x, Mode mode, const Tensor& entering = {}) const;

  const FeatureNormOptions& options() const { return options_; }

  std::optional<LayerNorm> layer_norm;
  std::optional<GraphLayerNorm> graph_layer_norm;
  std::optional<CenterNorm> center_norm;
  std::optional<GraphNorm> graph_norm;
  std::optional<BatchNorm> batch_norm;
  std::optional<DiffGroupNorm> group_norm;
  std::optional<MessageNorm> message_norm;

 private:
  FeatureNormOptions options_;
};

}  // namespace lipgrad
