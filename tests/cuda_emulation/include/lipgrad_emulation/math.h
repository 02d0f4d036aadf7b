#pragma once

// Device functions that <cmath> does not bring. The fast-math intrinsics are left out on purpose:
// lipgrad's kernels do not use them.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <lipgrad_emulation/intrinsics.h>

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * std::erfc(x * -0.70710678118654752); }

// Products and sums that nvcc does not contract.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

inline int __float_as_int(float x) {
  return lipgrad_emulation::from_bits<int>(lipgrad_emulation::to_bits(x));
}
inline unsigned __float_as_uint(float x) {
  return lipgrad_emulation::from_bits<unsigned>(lipgrad_emulation::to_bits(x));
}
inline float __int_as_float(int x) {
  return lipgrad_emulation::from_bits<float>(lipgrad_emulation::to_bits(x));
}
inline float __uint_as_float(unsigned x) {
  return lipgrad_emulation::from_bits<float>(lipgrad_emulation::to_bits(x));
}
inline long long __double_as_longlong(double x) {
  return lipgrad_emulation::from_bits<long long>(lipgrad_emulation::to_bits(x));
}
inline double __longlong_as_double(long long x) {
  return lipgrad_emulation::from_bits<double>(lipgrad_emulation::to_bits(x));
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// Of floating-point numbers these leave a NaN out, as fmin and fmax do.
template <class A, class B, class C = std::common_type_t<A, B>>
std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, C> min(A a, B b) {
  if constexpr (std::is_floating_point_v<C>) return std::fmin(static_cast<C>(a), static_cast<C>(b));
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <class A, class B, class C = std::common_type_t<A, B>>
std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, C> max(A a, B b) {
  if constexpr (std::is_floating_point_v<C>) return std::fmax(static_cast<C>(a), static_cast<C>(b));
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
