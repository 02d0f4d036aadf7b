#pragma once

// C++17, for host and device compilers alike.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // to[i] = from[i] converted as C++ does, i < n; for any two different element types.
    template <class From, class To> void convert(std::int64_t n, const From* from, To* to);)

// Calls F(From, To) for all pairs, to instantiate.
#define LIPGRAD_CONVERSIONS_FROM(F, From, A, B, C, D) F(From, A) F(From, B) F(From, C) F(From, D)
#define LIPGRAD_CONVERSIONS(F)                                                         \
  LIPGRAD_CONVERSIONS_FROM(F, float, double, std::int32_t, std::int64_t, std::uint8_t) \
  LIPGRAD_CONVERSIONS_FROM(F, double, float, std::int32_t, std::int64_t, std::uint8_t) \
  LIPGRAD_CONVERSIONS_FROM(F, std::int32_t, float, double, std::int64_t, std::uint8_t) \
  LIPGRAD_CONVERSIONS_FROM(F, std::int64_t, float, double, std::int32_t, std::uint8_t) \
  LIPGRAD_CONVERSIONS_FROM(F, std::uint8_t, float, double, std::int32_t, std::int64_t)
