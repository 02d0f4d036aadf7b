#pragma once

#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// The parts that message functions are made of, in f32 and f64. Their gradients are made of the
// same parts. Values of edges are tensors whose row k belongs to edge k of the graph, that is, in
// the order of graph.pattern(); attributes that came with a list of edges are brought into it by
// gather(attributes, graph.edge_order()). What a node sums over its edges is added in their order,
// so that results do not depend on threads. Errors name the op and the shape given: when sizes do
// not fit the graph, or dtypes or devices differ.

// y[i] = max over the edges j -> i of x[j], feature by feature: x and y are (N, ...). 0 where a
// node has no such edge. The gradient goes to the largest source; among equal ones to that of
// lowest id. A NaN is the largest.
Tensor neighbor_max(const Graph& graph, const Tensor& x);

}  // namespace lipgrad
