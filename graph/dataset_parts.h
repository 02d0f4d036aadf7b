#pragma once

#include <cstdint>
#include <vector>

#include <lipgrad/graph/datasets.h>

// What the readers of data sets share; not for users.
namespace lipgrad::detail {

template <class T>
Tensor vector_tensor(const std::vector<T>& values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values);
}

// Dense or sparse, normalised or not, as the options say; `normalize` where they say nothing.
Features finish_features(Features features, const NodeDataOptions& options, bool normalize);

// The places in [0, count) where the mask is not zero.
Tensor selected_ids(const std::uint8_t* mask, std::int64_t count);

// For nodes that have no features: one each, of its own, as Kipf and Welling do. Sparse unless the
// options say otherwise.
Features identity_features(std::int64_t nodes, const NodeDataOptions& options);

// The mean of the features of each node's edges, self-loops excepted; zero where there are none.
Tensor mean_of_edges(const Graph& graph, const Tensor& edge_features);

}  // namespace lipgrad::detail
