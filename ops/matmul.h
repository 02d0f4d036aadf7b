#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;  // of the last two dimensions
};

// c(..., m, n) = op(a) op(b) with op(a)(..., m, k) and op(b)(..., k, n), where op swaps the last
// two dimensions if asked to. The dimensions before these are a batch, broadcast as in NumPy: a
// missing one or one of size 1 is shared. k = 0 gives zeros. f32 or f64. Error when an operand has
// fewer than two dimensions (reshape a vector to (1, k) or (k, 1): which is meant is for the caller
// to say), sizes do not fit, or dtypes or devices differ.
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});

}  // namespace lipgrad
