#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// NodeNorm (Zhou, Dong, Wang, Lee, Hooi, Xu, Feng, "Understanding and Resolving Performance
// Degradation in Deep Graph Convolutional Networks", CIKM 2021, arXiv:2006.07107): each row of
// x(N, D) divided by the p-th root of its standard deviation,
//
//   y_i = x_i / sigma_i^(1 / p),  sigma_i = sqrt(mean((x_i - mean(x_i))^2) + eps)
//
// without centring. Scaling x by t scales y by t^(1 - 1 / p), up to eps: p = 1 takes scale away, p
// large leaves x as it is. f32 or f64. Error unless x is a matrix with D >= 1 and p and eps are
// positive and finite.
Tensor node_norm(const Tensor& x, double p = 2, double eps = 1e-5);

// x - mean for x(N, D), with the mean of the rows: what nodes have in common is taken away (the
// centring of PairNorm; Yang, Wang, Yao, Liu, Abdelzaher, "Revisiting Over-smoothing in Deep GCNs",
// arXiv:2003.13663). A projection: linear, with the l2 Lipschitz constant 1. Error unless x is a
// matrix.
Tensor mean_norm(const Tensor& x);

}  // namespace lipgrad
