#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// (1 - beta) I + beta weight for a square weight: the identity map of deep graph networks, with
// which a layer stays near one that copies (Chen, Wei, Huang, Ding, Li, "Simple and Deep Graph
// Convolutional Networks", ICML 2020, equation 5). beta = 1 gives the weight itself, of
// any shape. f32 or f64. Error unless the weight is a square matrix and beta is above 0 and at most
// 1.
Tensor identity_map(const Tensor& weight, double beta);

// Error "<layer>: ..." unless beta is above 0 and at most 1, and in = out where it is less than 1.
void check_identity_map(const char* layer, double beta, std::int64_t in, std::int64_t out);

}  // namespace lipgrad
