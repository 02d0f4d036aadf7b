#pragma once

#include <cstdint>

#include <lipgrad/core/module.h>
#include <lipgrad/graph/features.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// A layer of message passing, whatever its kind: what a model that stacks such layers knows of one.
class GraphConv : public Module {
 public:
  using Module::Module;

  // The layer's result (N, out_features()) for node features x (N, in_features()), dense or sparse,
  // and features of the edges (E, F) in the order of the graph's edges, undefined for none. Error
  // where the layer was made for other widths, or takes no edge features and gets some.
  virtual Tensor forward(const Graph& graph, const Features& x, const Tensor& edge_features,
                         Mode mode) const = 0;
  // The same without edge features. (A layer says `using GraphConv::forward;` to keep this one.)
  Tensor forward(const Graph& graph, const Features& x, Mode mode) const {
    return forward(graph, x, {}, mode);
  }

  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t out_features() const = 0;
};

}  // namespace lipgrad
