#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Activation functions, elementwise on f32 or f64 tensors of any shape.

// max(x, 0); the gradient at 0 is 0.
Tensor relu(const Tensor& x);
// x for x > 0, else slope x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
// x for x > 0, else alpha (e^x - 1) (Clevert, Unterthiner, Hochreiter, ICLR 2016). Error unless
// alpha >= 0.
Tensor elu(const Tensor& x, double alpha = 1);

enum class Gelu {
  exact,  // x Phi(x), Phi the normal distribution function
  tanh,   // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
};
// Hendrycks, Gimpel 2016, arXiv:1606.08415.
Tensor gelu(const Tensor& x, Gelu form = Gelu::exact);
// x sigmoid(x), also called swish.
Tensor silu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
// log(1 + e^(beta x)) / beta. Error unless beta > 0.
Tensor softplus(const Tensor& x, double beta = 1);

}  // namespace lipgrad
