#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// softmax(x) = e^x / sum e^x along `dim`, computed from x - max x. x: f32 or f64. With a mask (u8,
// of x's shape) entries whose mask is 0 take no part and get 0. A row that is empty, all masked or
// all -infinity becomes 0, with zero gradient.
Tensor softmax(const Tensor& x, int dim = -1, const Tensor& mask = {});

// log softmax(x) = x - log sum e^x. Masked entries get -infinity, and no gradient; a row that is
// all masked or all -infinity becomes 0, with zero gradient.
Tensor log_softmax(const Tensor& x, int dim = -1, const Tensor& mask = {});

}  // namespace lipgrad
