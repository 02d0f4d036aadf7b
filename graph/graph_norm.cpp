#include <lipgrad/graph/graph_norm.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/batch_norm.h>
#include <lipgrad/ops/init.h>

namespace lipgrad {
namespace {

std::int64_t checked(std::int64_t features) {
  LIPGRAD_CHECK(features >= 1, "GraphNorm: features must be at least 1, got {}", features);
  return features;
}

}  // namespace

GraphNorm::GraphNorm(Module& parent, std::string name, std::int64_t features,
                     const GraphNormOptions& options)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {checked(features)}, init::ones(), options.dtype),
      bias(*this, "bias", {features}, init::zeros(), options.dtype),
      mean_scale(*this, "mean_scale", {features}, init::ones(), options.dtype),
      features_(features),
      eps_(options.eps) {
  LIPGRAD_CHECK(eps_ >= 0, "GraphNorm: eps must not be negative, got {}", eps_);
}

Tensor GraphNorm::normalize(const Tensor& x, const Tensor& offsets) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rank() == 2 && x.size(1) == features_,
                "GraphNorm: made for nodes of {} features, got {}", features_, x.shape());
  return graph_norm(x, mean_scale, weight, bias, offsets, eps_);
}

Tensor GraphNorm::forward(const Tensor& x) const { return normalize(x, {}); }

Tensor GraphNorm::forward(const Graph& graph, const Tensor& x) const {
  LIPGRAD_CHECK(x.rank() == 2 && x.size(0) == graph.num_nodes(),
                "GraphNorm: a graph of {} nodes, features {}", graph.num_nodes(), x.shape());
  return normalize(x, graph.to(cpu_device).graph_offsets());
}

}  // namespace lipgrad
