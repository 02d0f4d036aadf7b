#pragma once

// C++17, for host and device compilers alike. What functors.h is written in, for plain float and
// double.

#include <cmath>

#include <lipgrad/core/philox.h>

namespace lipgrad::scalar {

#define LIPGRAD_SCALAR \
  template <class T>   \
  LIPGRAD_HD inline
LIPGRAD_SCALAR bool is_nan(T x) { return x != x; }
LIPGRAD_SCALAR T select(bool m, T yes, T no) { return m ? yes : no; }
LIPGRAD_SCALAR T abs(T x) { return ::fabs(x); }
// A NaN in either argument is the result.
LIPGRAD_SCALAR T min(T a, T b) { return is_nan(a) || a < b ? a : b; }
LIPGRAD_SCALAR T max(T a, T b) { return is_nan(a) || a > b ? a : b; }
#undef LIPGRAD_SCALAR

#define LIPGRAD_SCALAR(name)                                     \
  LIPGRAD_HD inline float name(float x) { return ::name##f(x); } \
  LIPGRAD_HD inline double name(double x) { return ::name(x); }
LIPGRAD_SCALAR(exp)
LIPGRAD_SCALAR(expm1)
LIPGRAD_SCALAR(log)
LIPGRAD_SCALAR(tanh)
LIPGRAD_SCALAR(sqrt)
#undef LIPGRAD_SCALAR

LIPGRAD_HD inline float log1p_unit(float u) { return ::log1pf(u); }
LIPGRAD_HD inline double log1p_unit(double u) { return ::log1p(u); }
LIPGRAD_HD inline float pow(float x, float y) { return ::powf(x, y); }
LIPGRAD_HD inline double pow(double x, double y) { return ::pow(x, y); }

// Phi(x), the standard normal distribution function, and exp(-x^2 / 2).
LIPGRAD_HD inline void normal_cdf(float x, float& cdf, float& gauss) {
  cdf = 0.5f * ::erfcf(x * -0.70710678f);
  gauss = ::expf(-0.5f * x * x);
}
LIPGRAD_HD inline void normal_cdf(double x, double& cdf, double& gauss) {
  cdf = 0.5 * ::erfc(x * -0.70710678118654752440);
  gauss = ::exp(-0.5 * x * x);
}

}  // namespace lipgrad::scalar
