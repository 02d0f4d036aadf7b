#pragma once

// Helpers of the tests that call kernels on raw arrays.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <lipgrad/core/threads.h>

namespace lipgrad {

template <class T>
std::vector<T> random_values(std::int64_t n, std::uint32_t seed, double low = -3, double high = 3) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(n);
  for (T& v : values) v = static_cast<T>(uniform(rng));
  return values;
}

// Distance in units of the last place of the expected value rounded to T; 0 for NaN against NaN and
// equal infinities, huge for a mismatch of either.
template <class T>
double ulps(T got, double expected) {
  if (std::isnan(got) || std::isnan(expected))
    return std::isnan(got) == std::isnan(expected) ? 0 : 1e30;
  const T rounded = static_cast<T>(expected);
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : 1e30;
  const T size = std::max(std::abs(rounded), std::numeric_limits<T>::min());
  const double ulp =
      double(std::nextafter(size, std::numeric_limits<T>::infinity())) - double(size);
  return std::abs(double(got) - expected) / ulp;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Runs f() with 1 and with 2 threads, restores the setting, and says whether the results were the
// same bits.
template <class F>
bool same_on_any_threads(F f) {
  const int before = num_threads();
  set_num_threads(1);
  const auto one = f();
  set_num_threads(2);
  const auto two = f();
  set_num_threads(before);
  return same_bits(one, two);
}

}  // namespace lipgrad
