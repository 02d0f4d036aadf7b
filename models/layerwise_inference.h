#pragma once

#include <cstdint>
#include <functional>

#include <lipgrad/graph/features.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// A layer as a function of the features h (n, F) of a graph's nodes, of a second tensor (n, G) that
// belongs to the nodes, as what entered the first layer, and of features of the edges; the last two
// may be undefined. Returns (n, F').
using GraphLayer = std::function<Tensor(const Graph& graph, const Features& h, const Tensor& first,
                                        const Tensor& edge_features)>;

// What a layer makes of all nodes of a graph, computed for block_nodes of them at a time on the
// block and its in-neighbours: apart from h, first and the result, (N, F'), there is never more
// than a block needs. A deep model that calls it layer by layer holds the features of two layers.
//
// The layer's result at a node must depend on nothing but the edges into the node and the rows at
// their ends. That holds for attention, also with the norms of single nodes and LipschitzNorm of
// neighbourhoods; not where degrees of the sources count (GCN), nor for norms over the graph. A
// node is projected once for every block that reads it: blocks pay where they have few neighbours
// outside, as after induced_data(data, metis_partition(graph, parts).nodes), which brings the nodes
// of a part together. No gradient is recorded. Error unless block_nodes >= 1 and the sizes agree.
Tensor layer_by_blocks(const GraphLayer& layer, const Graph& graph, const Features& h,
                       const Tensor& first, const Tensor& edge_features, std::int64_t block_nodes);

}  // namespace lipgrad
