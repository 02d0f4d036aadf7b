#pragma once

#include <optional>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/ops/kernels/activation.h>

namespace lipgrad {

struct LinearOptions {
  Activation activation = Activation::identity;
  // The activation's parameter: slope of leaky_relu (0.01 if unset), alpha of elu (1), beta of
  // softplus (1). The other activations have none.
  std::optional<double> parameter{};
};

// y(..., out) = f(x weight^T + bias) for x(..., in), weight(out, in) and, if defined, bias(out).
// Bias and activation are applied to each block of the product while it is in the cache; of the
// values in between only what the activation's gradient needs is kept. f32 or f64.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              LinearOptions options = {});

// The same for a sparse x(rows, in), which is never made dense: time and memory go with its
// nonzeros. All three of weight, bias and the values of x have gradients.
Tensor linear(const CsrMatrix& x, const Tensor& weight, const Tensor& bias = {},
              LinearOptions options = {});

}  // namespace lipgrad
