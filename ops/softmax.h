#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// exp(x) / sum exp(x) along one dimension, f32 or f64. A row in which all is -inf becomes 0, with
// no gradient.
Tensor softmax(const Tensor& x, int dim = -1);
// The same over the entries whose mask (u8, broadcast to x) is not 0; the others get 0 and no
// gradient. A row that is all masked out becomes 0.
Tensor softmax(const Tensor& x, const Tensor& mask, int dim = -1);

// x - log sum exp(x). Entries masked out get -inf and no gradient; a row that is all masked out or
// all -inf becomes 0, with no gradient.
Tensor log_softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, const Tensor& mask, int dim = -1);

}  // namespace lipgrad
