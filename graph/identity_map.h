#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// (1 - beta) I + beta weight for a square weight: the identity map of deep graph networks, with
// which a layer stays near one that copies (Chen, Wei, Huang, Ding, Li, "Simple and Deep Graph
// Convolutional Networks", ICML 2020, equation 5). beta = 1 gives the weight itself, of
// any shape. f32 or f64. Error unless the weight is a square matrix and beta is above 0 and at most
// 1.
Tensor identity_map(const Tensor& weight, double beta);

}  // namespace lipgrad
