#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Activation functions on f32 and f64, any shape. NaN stays NaN; infinities give the limits.

Tensor relu(const Tensor& x);  // max(x, 0); the gradient at 0 is 0
// x for x > 0, else slope x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
// x for x > 0, else alpha (e^x - 1) (Clevert, Unterthiner, Hochreiter, arXiv:1511.07289). Error
// unless alpha >= 0.
Tensor elu(const Tensor& x, double alpha = 1);
// x Phi(x), Phi the standard normal distribution function (Hendrycks, Gimpel, arXiv:1606.08415),
// and its approximation x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
Tensor gelu(const Tensor& x);
Tensor gelu_tanh(const Tensor& x);
Tensor silu(const Tensor& x);     // x sigmoid(x)
Tensor sigmoid(const Tensor& x);  // 1 / (1 + e^-x)
Tensor tanh(const Tensor& x);
// log(1 + e^(beta x)) / beta. Error unless beta > 0.
Tensor softplus(const Tensor& x, double beta = 1);

}  // namespace lipgrad
