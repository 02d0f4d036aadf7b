#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// The parts that message functions are made of, in f32 and f64. Their gradients are made of the
// same parts. Values of edges are tensors whose row k belongs to edge k of the graph, that is, in
// the order of graph.pattern(); attributes that came with a list of edges are brought into it by
// gather(attributes, graph.edge_order()). What a node sums over its edges is added in their order,
// so that results do not depend on threads. Errors name the op and the shape given: when sizes do
// not fit the graph, or dtypes or devices differ.

// Letters: N nodes, E edges, H heads, D features of a head, "..." any dimensions.

// How a node puts together what comes along its edges.
enum class Reduce : std::uint8_t { sum, mean, max };

// ---- from nodes to edges ----

// (N, ...) -> (E, ...): for each edge j -> i the row x[j], or x[i]. What message functions of one's
// own are written in (x_j and x_i of PyTorch Geometric). Where edge_add, edge_dot or aggregate can
// do it they take less memory.
Tensor gather_sources(const Graph& graph, const Tensor& x);
Tensor gather_destinations(const Graph& graph, const Tensor& x);
// source[j] + destination[i] for each edge j -> i: both (N, ...) -> (E, ...). The u_add_v of DGL.
Tensor edge_add(const Graph& graph, const Tensor& source, const Tensor& destination);
// <source[j], destination[i]> for each edge j -> i, the product over the last dimension: both (N,
// D)
// -> (E), or both (N, H, D) -> (E, H). The u_dot_v of DGL; attention scores of keys and queries.
Tensor edge_dot(const Graph& graph, const Tensor& source, const Tensor& destination);

// ---- over the edges into a node ----

// Softmax of scores (E, ...) over the edges into each node, column by column; without overflow.
// Where all scores are -inf the result is 0, with zero gradient.
Tensor edge_softmax(const Graph& graph, const Tensor& scores);
// y[i] = sum over the edges j -> i of w_ij x[j]. Without weights w is 1 and x (N, ...); weights (E)
// or (E, 1) go with any x (N, ...); weights (E, H), one for each head, with x (N, H, D) or (N, H
// D). y has the shape of x. mean: the sum over the number of these edges (not of their weights);
// max: as neighbor_max, takes no weights. Nodes without edges get 0. Values of edges themselves are
// added by segment_sum(values, graph.pattern().offsets()).
Tensor aggregate(const Graph& graph, const Tensor& x, const Tensor& weights = {},
                 Reduce reduce = Reduce::sum);
// y[i] = max over the edges j -> i of x[j], feature by feature: x and y are (N, ...). 0 where a
// node has no such edge. The gradient goes to the largest source; among equal ones to that of
// lowest id. A NaN is the largest.
Tensor neighbor_max(const Graph& graph, const Tensor& x);

}  // namespace lipgrad
