// Vectors of float or double with operators and the elementary functions that functors.h is written
// in, for one Highway target. Included once per target: by *_cpu.cpp files, after foreach_target.h
// and outside of any namespace. Everything lives in lipgrad::cpu::HWY_NAMESPACE.
//
// float: own polynomials, within 2 to 4 ulp where the result is a normal number (Phi and pdf:
// relative to their size, x^2 ulp), exact limits at infinities, NaN in gives NaN out. double:
// arithmetic in vectors, elementary functions lane by lane from the C library.

#if defined(LIPGRAD_OPS_KERNELS_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_OPS_KERNELS_SIMD_INL_H
#undef LIPGRAD_OPS_KERNELS_SIMD_INL_H
#else
#define LIPGRAD_OPS_KERNELS_SIMD_INL_H
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace hn = ::hwy::HWY_NAMESPACE;

template <class T>
struct Mask {
  hn::Mask<hn::ScalableTag<T>> raw;
};

template <class T>
struct Simd {
  using Tag = hn::ScalableTag<T>;
  hn::Vec<Tag> raw;

  HWY_INLINE Simd() = default;
  HWY_INLINE explicit Simd(hn::Vec<Tag> v) : raw(v) {}
  HWY_INLINE explicit Simd(double value) : raw(hn::Set(Tag(), static_cast<T>(value))) {}

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(Tag())); }
};

template <class T>
HWY_INLINE Simd<T> load(const T* p) {
  return Simd<T>(hn::LoadU(hn::ScalableTag<T>(), p));
}
template <class T>
HWY_INLINE void store(Simd<T> v, T* p) {
  hn::StoreU(v.raw, hn::ScalableTag<T>(), p);
}

// The first `count` < lanes() elements; the other lanes read zero and are not written.
template <class T>
HWY_INLINE Simd<T> load_part(const T* p, std::int64_t count) {
  const hn::ScalableTag<T> d;
#if HWY_TARGET <= HWY_AVX2
  return Simd<T>(hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, p));
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  for (std::int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return Simd<T>(hn::Load(d, buffer));
#endif
}
template <class T>
HWY_INLINE void store_part(Simd<T> v, T* p, std::int64_t count) {
  const hn::ScalableTag<T> d;
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v.raw, hn::FirstN(d, static_cast<std::size_t>(count)), d, p);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v.raw, d, buffer);
  for (std::int64_t i = 0; i < count; ++i) p[i] = buffer[i];
#endif
}

#define LIPGRAD_SIMD \
  template <class T> \
  HWY_INLINE
LIPGRAD_SIMD Simd<T> operator+(Simd<T> a, Simd<T> b) { return Simd<T>(hn::Add(a.raw, b.raw)); }
LIPGRAD_SIMD Simd<T> operator-(Simd<T> a, Simd<T> b) { return Simd<T>(hn::Sub(a.raw, b.raw)); }
LIPGRAD_SIMD Simd<T> operator*(Simd<T> a, Simd<T> b) { return Simd<T>(hn::Mul(a.raw, b.raw)); }
LIPGRAD_SIMD Simd<T> operator/(Simd<T> a, Simd<T> b) { return Simd<T>(hn::Div(a.raw, b.raw)); }
LIPGRAD_SIMD Simd<T> operator-(Simd<T> a) { return Simd<T>(hn::Neg(a.raw)); }
LIPGRAD_SIMD Mask<T> operator<(Simd<T> a, Simd<T> b) { return {hn::Lt(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> operator<=(Simd<T> a, Simd<T> b) { return {hn::Le(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> operator>(Simd<T> a, Simd<T> b) { return {hn::Gt(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> operator>=(Simd<T> a, Simd<T> b) { return {hn::Ge(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> operator==(Simd<T> a, Simd<T> b) { return {hn::Eq(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> operator&&(Mask<T> a, Mask<T> b) { return {hn::And(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> operator||(Mask<T> a, Mask<T> b) { return {hn::Or(a.raw, b.raw)}; }
LIPGRAD_SIMD Mask<T> is_nan(Simd<T> a) { return {hn::IsNaN(a.raw)}; }
LIPGRAD_SIMD Simd<T> select(Mask<T> m, Simd<T> yes, Simd<T> no) {
  return Simd<T>(hn::IfThenElse(m.raw, yes.raw, no.raw));
}
LIPGRAD_SIMD Simd<T> abs(Simd<T> a) { return Simd<T>(hn::Abs(a.raw)); }
LIPGRAD_SIMD Simd<T> sqrt(Simd<T> a) { return Simd<T>(hn::Sqrt(a.raw)); }
LIPGRAD_SIMD Simd<T> fma(Simd<T> a, Simd<T> b, Simd<T> c) {
  return Simd<T>(hn::MulAdd(a.raw, b.raw, c.raw));
}
// A NaN in either argument is the result.
LIPGRAD_SIMD Simd<T> min(Simd<T> a, Simd<T> b) {
  return select(is_nan(a), a, select(is_nan(b), b, Simd<T>(hn::Min(a.raw, b.raw))));
}
LIPGRAD_SIMD Simd<T> max(Simd<T> a, Simd<T> b) {
  return select(is_nan(a), a, select(is_nan(b), b, Simd<T>(hn::Max(a.raw, b.raw))));
}
LIPGRAD_SIMD T sum_of_lanes(Simd<T> a) {
  return hn::GetLane(hn::SumOfLanes(hn::ScalableTag<T>(), a.raw));
}
#undef LIPGRAD_SIMD

// The lanes before `count`.
template <class T>
HWY_INLINE Mask<T> first_lanes(std::int64_t count) {
  return {hn::FirstN(hn::ScalableTag<T>(), static_cast<std::size_t>(count))};
}
// max() that may lose a NaN, at one instruction.
template <class T>
HWY_INLINE Simd<T> quick_max(Simd<T> a, Simd<T> b) {
  return Simd<T>(hn::Max(a.raw, b.raw));
}
template <class T>
HWY_INLINE T quick_max_of_lanes(Simd<T> a) {
  return hn::GetLane(hn::MaxOfLanes(hn::ScalableTag<T>(), a.raw));
}

// Load and store of a piece of a row: count is lanes(), or less at the row's end. Missing lanes
// read 0 or `rest`.
template <class T>
HWY_INLINE Simd<T> get(const T* p, std::int64_t count) {
  return count == Simd<T>::lanes() ? load(p) : load_part(p, count);
}
template <class T>
HWY_INLINE Simd<T> get(const T* p, std::int64_t count, Simd<T> rest) {
  return count == Simd<T>::lanes() ? load(p)
                                   : select(first_lanes<T>(count), load_part(p, count), rest);
}
template <class T>
HWY_INLINE void put(Simd<T> v, T* p, std::int64_t count) {
  if (count == Simd<T>::lanes()) {
    store(v, p);
  } else {
    store_part(v, p, count);
  }
}

// f applied to each lane, for what has no vector form here.
template <class T, class F>
HWY_INLINE Simd<T> lane_by_lane(Simd<T> x, F f) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  const hn::ScalableTag<T> d;
  hn::Store(x.raw, d, buffer);
  for (std::int64_t i = 0; i < Simd<T>::lanes(); ++i) buffer[i] = f(buffer[i]);
  return Simd<T>(hn::Load(d, buffer));
}

// ---- float ----

using F32 = Simd<float>;

HWY_INLINE F32 polynomial(F32, double last) { return F32(last); }
template <class... More>
HWY_INLINE F32 polynomial(F32 x, double first, double second, More... more) {
  return fma(polynomial(x, second, more...), x, F32(first));
}

// 2^n for integers n in [-126, 127].
HWY_INLINE F32 exp2_integer(hn::Vec<hn::ScalableTag<std::int32_t>> n) {
  const hn::ScalableTag<std::int32_t> di;
  return F32(
      hn::BitCast(hn::ScalableTag<float>(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127)))));
}

// x = n ln 2 + r with |r| <= ln(2) / 2 (1 + tiny); e^r - 1 with relative error below 3e-10 before
// rounding.
struct ExpParts {
  hn::Vec<hn::ScalableTag<std::int32_t>> n;
  F32 expm1_r;
};
HWY_INLINE ExpParts exp_parts(F32 x) {
  const F32 n(hn::Round((x * F32(1.44269504088896341)).raw));
  F32 r = fma(n, F32(-0.693359375), x);  // 9 bits: the product is exact
  r = fma(n, F32(2.12194440054690583e-4), r);
  const F32 q =
      polynomial(r, 0.5, 0.16666665673, 0.04166635871, 0.00833338965, 0.00139409269, 0.00019845901);
  return {hn::ConvertTo(hn::ScalableTag<std::int32_t>(), n.raw), fma(q, r * r, r)};
}

// x held within [low, high]; NaN stays NaN.
HWY_INLINE F32 hold(F32 x, double low, double high) {
#if HWY_TARGET == HWY_SCALAR
  return select(x < F32(low), F32(low), select(x > F32(high), F32(high), x));
#else  // the second operand is what x86 returns for unordered ones; others return NaN
  return F32(hn::Min(F32(high).raw, hn::Max(F32(low).raw, x.raw)));
#endif
}

HWY_INLINE F32 exp(F32 x) {
  // Below -104 the result rounds to 0, above 89 to infinity.
  const ExpParts parts = exp_parts(hold(x, -104, 89));
  const auto half = hn::ShiftRight<1>(parts.n);  // in two steps: 2^n may be subnormal or overflow
  return (F32(1) + parts.expm1_r) * exp2_integer(half) * exp2_integer(hn::Sub(parts.n, half));
}

HWY_INLINE F32 expm1(F32 x) {
  const ExpParts parts = exp_parts(hold(x, -20, 89));
  const F32 half_scale =
      exp2_integer(hn::Sub(parts.n, hn::Set(hn::ScalableTag<std::int32_t>(), 1)));
  const F32 y = fma(half_scale, parts.expm1_r, half_scale - F32(0.5));
  return select(abs(x) < F32(1e-30), x, y + y);  // there half of x would underflow
}

// log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1], plus e ln 2.
HWY_INLINE F32 log_parts(F32 f, F32 e) {
  const F32 p = polynomial(f, 0.33333331347, -0.25000837445, 0.20001292229, -0.16622763872,
                           0.14199699461, -0.13164198399, 0.12779088318, -0.07646037638);
  const F32 f2 = f * f;
  const F32 tail = fma(f2 * f, p, fma(e, F32(-2.12194440054690583e-4), F32(-0.5) * f2));
  return fma(e, F32(0.693359375), f + tail);
}

HWY_INLINE F32 log(F32 x) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::int32_t> di;
  const auto small = x < F32(1.17549435e-38);
  const F32 scaled = select(small, x * F32(8388608), x);
  const auto bits = hn::BitCast(di, scaled.raw);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const F32 mantissa(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e))));
  const F32 exponent = F32(hn::ConvertTo(d, e)) + select(small, F32(-23), F32(0));
  const F32 y = log_parts(mantissa - F32(1), exponent);
  const F32 infinity(std::numeric_limits<float>::infinity());
  const F32 limits = select(x == F32(0), -infinity, F32(std::numeric_limits<float>::quiet_NaN()));
  return select(x > F32(0), select(x == infinity, x, y), limits);
}

// log(1 + u) for u in [0, 1].
HWY_INLINE F32 log1p_unit(F32 u) {
  const auto low = u <= F32(0.41421356);
  const F32 y = log_parts(select(low, u, (u - F32(1)) * F32(0.5)), select(low, F32(0), F32(1)));
  return select(is_nan(u), u, y);
}

HWY_INLINE F32 tanh(F32 x) {
  const F32 e = expm1(F32(2) * select(abs(x) > F32(10), F32(10), abs(x)));
  const F32 y = e / (e + F32(2));
  return F32(hn::CopySignToAbs(y.raw, x.raw));
}

HWY_INLINE F32 pow(F32 x, F32 y) {
  HWY_ALIGN float a[HWY_MAX_BYTES / sizeof(float)], b[HWY_MAX_BYTES / sizeof(float)];
  const hn::ScalableTag<float> d;
  hn::Store(x.raw, d, a);
  hn::Store(y.raw, d, b);
  for (std::int64_t i = 0; i < F32::lanes(); ++i) a[i] = std::pow(a[i], b[i]);
  return F32(hn::Load(d, a));
}

// Phi(x), the standard normal distribution function, and exp(-x^2 / 2).
// Phi(-t) = exp(-t^2 / 2) z P(z), z = 1 / (1 + 0.3 t) for t >= 0: P is a minimax fit on t <= 14.5,
// where Phi falls below the smallest float.
HWY_INLINE void normal_cdf(F32 x, F32& cdf, F32& gauss) {
  const F32 t = abs(x);
  gauss = exp(F32(-0.5) * t * t);
  const F32 z = F32(1) / fma(F32(0.3), t, F32(1));
  const F32 p = polynomial(z, 0.11968669295310974, 0.11957181245088577, 0.11023546755313873,
                           0.07838944345712662, 0.09615743905305862, -0.07942463457584381,
                           0.19178593158721924, -0.22821465134620667, 0.11243606358766556,
                           -0.020623551681637764);
  const F32 tail = gauss * (z * p);
  cdf = select(x > F32(0), F32(1) - tail, tail);
}

// ---- double ----

using F64 = Simd<double>;

HWY_INLINE F64 exp(F64 x) {
  return lane_by_lane(x, [](double v) { return std::exp(v); });
}
HWY_INLINE F64 expm1(F64 x) {
  return lane_by_lane(x, [](double v) { return std::expm1(v); });
}
HWY_INLINE F64 log(F64 x) {
  return lane_by_lane(x, [](double v) { return std::log(v); });
}
HWY_INLINE F64 log1p_unit(F64 x) {
  return lane_by_lane(x, [](double v) { return std::log1p(v); });
}
HWY_INLINE F64 tanh(F64 x) {
  return lane_by_lane(x, [](double v) { return std::tanh(v); });
}
HWY_INLINE F64 pow(F64 x, F64 y) {
  HWY_ALIGN double b[HWY_MAX_BYTES / sizeof(double)];
  hn::Store(y.raw, hn::ScalableTag<double>(), b);
  const double* exponent = b;
  return lane_by_lane(x, [&exponent](double v) { return std::pow(v, *exponent++); });
}
HWY_INLINE void normal_cdf(F64 x, F64& cdf, F64& gauss) {
  cdf = lane_by_lane(x, [](double v) { return 0.5 * std::erfc(v * -0.70710678118654752440); });
  gauss = exp(F64(-0.5) * x * x);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
