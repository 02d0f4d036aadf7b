#pragma once

#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// In training mode each element is 0 with probability p, else x / (1 - p); one draw of the mode's
// generator. In evaluation mode, and for p = 0, x itself. The mask is not stored but computed again
// in backward. x: f32 or f64, any shape. Error unless 0 <= p <= 1.
Tensor dropout(const Tensor& x, double p, Mode mode);

}  // namespace lipgrad
