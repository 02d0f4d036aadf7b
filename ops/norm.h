#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Normalisation of every row along the last dimension (C elements), f32 or f64.

// (x - mean) / sqrt(var + eps) * weight + bias, var the mean squared deviation (Ba, Kiros, Hinton,
// arXiv:1607.06450). weight and bias have shape (C), or are undefined: 1 and 0.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) * weight (Zhang, Sennrich, arXiv:1910.07467).
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
// D / (D - 1) (x - mean) * weight + bias for rows of D elements: only centred, not divided by their
// deviation, so that the map is linear and its Lipschitz constant D / (D - 1) max|weight| (Qi et
// al., LipsFormer, arXiv:2304.09856, CenterNorm). weight and bias have shape (D), or are undefined:
// 1 and 0. Error for D = 1.
Tensor center_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {});

// x / max(|x|, eps) with the l2 norms |x| along `dim`. Where |x| < eps that is x / eps, gradient
// included. Error unless eps > 0.
Tensor l2_normalize(const Tensor& x, int dim = -1, double eps = 1e-12);

}  // namespace lipgrad
