// C++17, for host and device compilers alike. The formulas of the elementwise ops, each written
// once: generic over V, which is float or double (plain and CUDA code: namespace lipgrad::scalar)
// or a Highway vector (included after simd-inl.h: namespace lipgrad::cpu::HWY_NAMESPACE). Limits:
// NaN in gives NaN out, no intermediate overflow turns into NaN, infinities give the mathematical
// limit.
//
// Forward functors map x to y. The functor <Name>Backward maps (s, g) to the gradient dL/dx, where
// g is dL/dy and s is the saved value: x unless the comment says y.

#if defined(LIPGRAD_OPS_KERNELS_FUNCTORS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_OPS_KERNELS_FUNCTORS_H
#undef LIPGRAD_OPS_KERNELS_FUNCTORS_H
#else
#define LIPGRAD_OPS_KERNELS_FUNCTORS_H
#endif

#ifdef HWY_BEFORE_NAMESPACE
HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
#define LIPGRAD_FN HWY_INLINE
#else
#include <lipgrad/ops/kernels/scalar_math.h>
namespace lipgrad::scalar {
#define LIPGRAD_FN LIPGRAD_HD inline
#endif

// Every functor is built from two parameters, most use none or one.
#define LIPGRAD_UNARY(Name, ...)         \
  struct Name {                          \
    double a, b;                         \
    template <class V>                   \
    LIPGRAD_FN V operator()(V x) const { \
      __VA_ARGS__                        \
    }                                    \
  };
#define LIPGRAD_BINARY(Name, ...)                              \
  struct Name {                                                \
    double a, b;                                               \
    template <class V>                                         \
    LIPGRAD_FN V operator()([[maybe_unused]] V x, V g) const { \
      __VA_ARGS__                                              \
    }                                                          \
  };

// ---- arithmetic ----

LIPGRAD_UNARY(Neg, return -x;)
LIPGRAD_BINARY(NegBackward, return -g;)
LIPGRAD_UNARY(Exp, return exp(x);)
LIPGRAD_BINARY(ExpBackward, return x * g;)  // y
LIPGRAD_UNARY(Log, return log(x);)
LIPGRAD_BINARY(LogBackward, return g / x;)
LIPGRAD_UNARY(Sqrt, return sqrt(x);)
LIPGRAD_BINARY(SqrtBackward, return g * V(0.5) / x;)  // y
LIPGRAD_UNARY(Abs, return abs(x);)
LIPGRAD_BINARY(AbsBackward, return select(x > V(0), g, select(x < V(0), -g, V(0) * x * g));)
LIPGRAD_UNARY(Square, return x * x;)
LIPGRAD_BINARY(SquareBackward, return V(2) * x * g;)
LIPGRAD_UNARY(Reciprocal, return V(1) / x;)
LIPGRAD_BINARY(ReciprocalBackward, return -g * x * x;)  // y
LIPGRAD_UNARY(AddScalar, return x + V(a);)              // x + a
LIPGRAD_BINARY(AddScalarBackward, return g;)
LIPGRAD_UNARY(MulScalar, return x * V(a);)  // a x
LIPGRAD_BINARY(MulScalarBackward, return g * V(a);)
LIPGRAD_UNARY(DivScalar, return x / V(a);)  // x / a
LIPGRAD_BINARY(DivScalarBackward, return g / V(a);)
LIPGRAD_UNARY(ScalarSub, return V(a) - x;)  // a - x
LIPGRAD_BINARY(ScalarSubBackward, return -g;)
LIPGRAD_UNARY(ScalarDiv, return V(a) / x;)  // a / x
LIPGRAD_BINARY(ScalarDivBackward, return -g * V(a) / (x * x);)
LIPGRAD_UNARY(PowScalar, return pow(x, V(a));)  // x^a
LIPGRAD_BINARY(PowScalarBackward, if (a == 0) return V(0); return g * V(a) * pow(x, V(a - 1));)
LIPGRAD_UNARY(Clamp, return min(max(x, V(a)), V(b));)  // to [a, b]
LIPGRAD_BINARY(ClampBackward, return select(x < V(a) || x > V(b), V(0), g);)

// Two operands: x op g.
LIPGRAD_BINARY(Add, return x + g;)
LIPGRAD_BINARY(Sub, return x - g;)
LIPGRAD_BINARY(Mul, return x * g;)
LIPGRAD_BINARY(Div, return x / g;)
LIPGRAD_BINARY(Pow, return pow(x, g);)
LIPGRAD_BINARY(Minimum, return min(x, g);)
LIPGRAD_BINARY(Maximum, return max(x, g);)

#undef LIPGRAD_BINARY

// Gradients of u op v for u (First) and v (Second), given g = dL/dy.
#define LIPGRAD_TERNARY(Name, ...)                                  \
  struct Name {                                                     \
    template <class V>                                              \
    LIPGRAD_FN V operator()([[maybe_unused]] V u, V v, V g) const { \
      __VA_ARGS__                                                   \
    }                                                               \
  };
LIPGRAD_TERNARY(DivFirst, return g / v;)
LIPGRAD_TERNARY(DivSecond, return -g * (u / v) / v;)
// d/du u^v = v u^(v - 1), 0 where v = 0. d/dv = u^v log u, 0 where u = 0 and v >= 0.
LIPGRAD_TERNARY(PowFirst, return select(v == V(0), V(0), pow(u, v - V(1)) * v * g);)
LIPGRAD_TERNARY(PowSecond, return select(u == V(0) && v >= V(0), V(0), pow(u, v) * log(u) * g);)
// A tie gives each side half.
LIPGRAD_TERNARY(MinimumFirst, return select(u < v, g, select(u == v, V(0.5) * g, V(0)));)
LIPGRAD_TERNARY(MinimumSecond, return select(v < u, g, select(u == v, V(0.5) * g, V(0)));)
LIPGRAD_TERNARY(MaximumFirst, return select(u > v, g, select(u == v, V(0.5) * g, V(0)));)
LIPGRAD_TERNARY(MaximumSecond, return select(v > u, g, select(u == v, V(0.5) * g, V(0)));)
#undef LIPGRAD_TERNARY

// ---- activations ----

// s = 1 / (1 + e^-x) and c = 1 - s, both accurate however small.
template <class V>
LIPGRAD_FN void logistic(V x, V& s, V& c) {
  const V t = exp(-abs(x));
  const V large = V(1) / (V(1) + t), small = t * large;
  const auto positive = x >= V(0);
  s = select(positive, large, small);
  c = select(positive, small, large);
}

LIPGRAD_UNARY(Identity, return x;)
LIPGRAD_UNARY(Relu, return max(x, V(0));)
LIPGRAD_UNARY(LeakyRelu, return select(x > V(0), x, V(a) * x);)  // slope a
LIPGRAD_UNARY(Elu, return select(x > V(0), x, V(a) * expm1(x));)
LIPGRAD_UNARY(Sigmoid, V s, c; logistic(x, s, c); return s;)
LIPGRAD_UNARY(Tanh, return tanh(x);)
// log(1 + e^(a x)) / a
LIPGRAD_UNARY(Softplus, const V z = V(a) * x;
              return (max(z, V(0)) + log1p_unit(exp(-abs(z)))) / V(a);)
// x sigmoid(x). Far left the factor is 0: x is held finite there, so that the product is 0 too.
LIPGRAD_UNARY(Silu, V s, c; logistic(x, s, c); return max(x, V(-750)) * s;)
// x Phi(x)
LIPGRAD_UNARY(Gelu, V cdf, gauss; normal_cdf(x, cdf, gauss); return max(x, V(-40)) * cdf;)
// x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
LIPGRAD_UNARY(GeluTanh, const V z = max(x, V(-40)); V s, c;
              logistic(V(1.5957691216057308) * (x + V(0.044715) * x * x * x), s, c); return z * s;)
#undef LIPGRAD_UNARY

#define LIPGRAD_BACKWARD(Name, ...)                            \
  struct Name##Backward {                                      \
    double a, b;                                               \
    template <class V>                                         \
    LIPGRAD_FN V operator()([[maybe_unused]] V s, V g) const { \
      __VA_ARGS__                                              \
    }                                                          \
  };
LIPGRAD_BACKWARD(Identity, return g;)
LIPGRAD_BACKWARD(Relu, return select(s <= V(0), V(0), g);)  // y
LIPGRAD_BACKWARD(LeakyRelu,
                 return select(s > V(0), g, V(a) * g);)  // y if the slope is >= 0, x always
LIPGRAD_BACKWARD(Elu, return select(s > V(0), g, g*(s + V(a)));)  // y, a >= 0
LIPGRAD_BACKWARD(Sigmoid, return g * s * (V(1) - s);)             // y
LIPGRAD_BACKWARD(Tanh, return g * (V(1) - s * s);)                // y
LIPGRAD_BACKWARD(Softplus, V p, c; logistic(V(a) * s, p, c); return g * p;)
LIPGRAD_BACKWARD(Silu, V p, c; logistic(s, p, c); const V x = min(max(s, V(-750)), V(750));
                 return g * p * (V(1) + x * c);)
LIPGRAD_BACKWARD(Gelu, V cdf, gauss; const V x = min(max(s, V(-40)), V(40));
                 normal_cdf(x, cdf, gauss); return g * (cdf + V(0.39894228040143268) * x * gauss);)
LIPGRAD_BACKWARD(GeluTanh, const V x = min(max(s, V(-40)), V(40)); V p, c;
                 logistic(V(1.5957691216057308) * (x + V(0.044715) * x * x * x), p, c);
                 const V slope = V(1.5957691216057308) * (V(1) + V(3 * 0.044715) * x * x);
                 return g * p * (V(1) + x * c * slope);)
#undef LIPGRAD_BACKWARD

#undef LIPGRAD_FN

#ifdef HWY_BEFORE_NAMESPACE
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace lipgrad::scalar
#endif

#endif
