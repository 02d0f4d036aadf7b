#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Elementwise arithmetic on f32 and f64. Two tensors must agree on dtype and device; their shapes
// are broadcast as NumPy does: aligned at the last dimension, sizes equal or 1. Errors name the op
// and what was given.

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// a^b. The gradient for b is 0 where a = 0 and b >= 0.
Tensor pow(const Tensor& a, const Tensor& b);
// The smaller, the larger; NaN if either is. The gradient goes to the one chosen, half to each when
// equal.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);

Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor sub(double a, const Tensor& b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor div(double a, const Tensor& b);
Tensor pow(const Tensor& a, double b);
// The nearest value in [low, high], which may be infinite; NaN stays. The gradient passes inside
// the interval, ends included. Error unless low <= high.
Tensor clamp(const Tensor& x, double low, double high);

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);   // natural
Tensor sqrt(const Tensor& x);  // the gradient at 0 is infinite
Tensor abs(const Tensor& x);   // the gradient at 0 is 0
Tensor square(const Tensor& x);
Tensor reciprocal(const Tensor& x);

// a where the condition (u8) is not 0, else b; all three are broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }

}  // namespace lipgrad
