#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Reductions of the rows of values (M, ...), f32 or f64, over segments: segment s is the rows from
// offsets[s] to before offsets[s + 1], offsets (S + 1) an i64 tensor on the same device that goes
// from 0 to M and never down. The result is (S, ...); a segment without rows is 0 with zero
// gradient, for every reduction. graph.pattern().offsets() makes edge values (E, ...) into values
// of nodes, graph.graph_offsets() values of nodes into those of the graphs of a batch (pooling).
// Rows are added in order, in blocks that depend on the offsets alone. Error when shapes or devices
// do not fit, or (checked on the CPU only) when the offsets are not as said.

Tensor segment_sum(const Tensor& values, const Tensor& offsets);
Tensor segment_mean(const Tensor& values, const Tensor& offsets);
// The largest; NaN if there is one. The gradient goes to the first of equal ones.
Tensor segment_max(const Tensor& values, const Tensor& offsets);
// log sum exp(values), without overflow; -inf, with zero gradient, where all values are -inf.
Tensor segment_logsumexp(const Tensor& values, const Tensor& offsets);

}  // namespace lipgrad
