#pragma once

#include <lipgrad/graph/node_data.h>

namespace lipgrad {

// The part of a graph that some of its nodes span: node i of it is nodes[i] of the original, and it
// has every edge between two of them. edge_order() says which: edge k is edge edge_order()[k] of
// the original, so that gather(x, edge_order()) brings whatever belongs to the original's edges
// along. nodes: i32 or i64 of rank 1, distinct ids in any order. Takes time in proportion to the
// edges into these nodes, and four bytes for each node of the original. The result is on the
// graph's device. Error for ids out of range or repeated, and for a batch of several graphs.
Graph induced_subgraph(const Graph& graph, const Tensor& nodes);

// Some nodes and what one layer of message passing reads to compute their rows.
struct Neighborhood {
  // The nodes and the sources of all edges into them, with these edges and no others, in the order
  // of the original: sums over a node's edges have the same bits. edge_order() as above.
  Graph graph;
  Tensor nodes;  // (n, i64): the original ids, ascending
  Tensor rows;   // (i64): where among them the wanted nodes stand, in the order of the request
};

// nodes: as for induced_subgraph(), with the same errors.
Neighborhood neighborhood(const Graph& graph, const Tensor& nodes);

// Rows of features in the order of nodes (see gather), sparse ones as a sparse matrix. No gradient.
Features select_rows(const Features& features, const Tensor& nodes);

// The same part of a data set: the graph, features of its nodes and edges, labels and the split of
// these nodes. Split ids ascend. A self-loop stays one; nothing else of the original is kept alive.
// The result is on the device of the data.
NodeData induced_data(const NodeData& data, const Tensor& nodes);

// The data of some nodes on a graph of these made from that of the data, whose edge_order() gives
// the edges' numbers there: what induced_data() does when the graph is another part of it. The
// split is empty.
NodeData select_node_data(const NodeData& data, const Graph& graph, const Tensor& nodes);

}  // namespace lipgrad
