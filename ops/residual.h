#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Residual connections with a factor of each feature. x and f have the same shape (..., D), f32 or
// f64; alpha has shape (D) or is a scalar (). Each is one pass over memory, as is its gradient;
// alpha's is summed over rows in a fixed order.

// x + alpha f: a weighted residual shortcut (Qi et al., LipsFormer, arXiv:2304.09856; Bachlechner
// et al., ReZero, arXiv:2003.04887, for a scalar that starts at 0).
Tensor weighted_residual(const Tensor& x, const Tensor& f, const Tensor& alpha);

// x + alpha (f - x): from x at alpha = 0 to f at alpha = 1.
Tensor damped_residual(const Tensor& x, const Tensor& f, const Tensor& alpha);

}  // namespace lipgrad
