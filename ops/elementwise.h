#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Elementwise arithmetic, f32 or f64. Two tensors must have the same dtype; their shapes broadcast
// as in NumPy (aligned at the last dimension, sizes equal or 1). Errors name the op and both
// shapes.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// a^b. Where a < 0 and b is no integer the result is NaN; the gradient for b is 0 where a = 0.
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& x, double exponent);
// Where both are equal each gets half of the gradient.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& x, double a);
Tensor operator+(double a, const Tensor& x);
Tensor operator-(const Tensor& x, double a);
Tensor operator-(double a, const Tensor& x);
Tensor operator*(const Tensor& x, double a);
Tensor operator*(double a, const Tensor& x);
Tensor operator/(const Tensor& x, double a);
Tensor operator/(double a, const Tensor& x);
Tensor operator-(const Tensor& x);

Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
// The gradient at 0 is infinite.
Tensor sqrt(const Tensor& x);
// The gradient at 0 is 0.
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);
// To [low, high]; the gradient is 1 within, the ends included, and 0 outside. Error unless low <=
// high.
Tensor clamp(const Tensor& x, double low, double high);
// condition ? a : b, elementwise with broadcasting; condition is u8, true where it is not 0.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace lipgrad
