#include <lipgrad/core/random.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

constexpr std::int64_t grain = 1 << 13;  // a multiple of 4, the elements of a Philox block

// A number in [0, 1) from two words, 53 bits.
double unit_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
}

// f64 element e reads words 2e and 2e+1 of the draw's stream.
double unit_double(std::uint64_t seed, std::uint64_t draw, std::uint64_t element) {
  const PhiloxBlock block = philox(seed, draw, element / 2);
  return unit_double(block.word[element % 2 * 2], block.word[element % 2 * 2 + 1]);
}

}  // namespace

Generator& Mode::rng() const {
  LIPGRAD_CHECK(rng_, "mode: evaluation mode has no random numbers; use Mode::train(rng)");
  return *rng_;
}

Tensor rand_uniform(const Shape& shape, double low, double high, DType dtype, Generator& rng) {
  LIPGRAD_CHECK(low <= high && std::isfinite(high - low),
                "rand_uniform: low {} and high {} are no range", low, high);
  Tensor x = empty(shape, dtype);
  const std::uint64_t seed = rng.seed(), draw = rng.take_draw();
  visit_float("rand_uniform", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* values = x.mutable_data<T>();
    const T lowest = static_cast<T>(low), last = std::nextafter(static_cast<T>(high), lowest);
    parallel_for(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double unit = std::is_same_v<T, float> ? unit_float(philox_word(seed, draw, i))
                                                     : unit_double(seed, draw, i);
        values[i] =
            std::clamp(static_cast<T>(low + (high - low) * unit), lowest, std::max(lowest, last));
      }
    });
  });
  return x;
}

Tensor randn(const Shape& shape, DType dtype, Generator& rng) {
  Tensor x = empty(shape, dtype);
  const std::uint64_t seed = rng.seed(), draw = rng.take_draw();
  visit_float("randn", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* values = x.mutable_data<T>();
    // Pairs of elements share one Philox block: Box-Muller turns two uniforms into two normals.
    parallel_for((x.numel() + 1) / 2, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) {
        const PhiloxBlock block = philox(seed, draw, pair);
        const double u = 1.0 - unit_double(block.word[0], block.word[1]);  // in (0, 1]
        const double angle = 2 * std::numbers::pi * unit_double(block.word[2], block.word[3]);
        const double radius = std::sqrt(-2 * std::log(u));
        values[2 * pair] = static_cast<T>(radius * std::cos(angle));
        if (2 * pair + 1 < x.numel())
          values[2 * pair + 1] = static_cast<T>(radius * std::sin(angle));
      }
    });
  });
  return x;
}

Tensor rand_int(const Shape& shape, std::int64_t bound, Generator& rng) {
  LIPGRAD_CHECK(bound >= 1 && bound <= (std::int64_t{1} << 32),
                "rand_int: bound {} is not in [1, 2^32]", bound);
  Tensor x = empty(shape, i64);
  const std::uint64_t seed = rng.seed(), draw = rng.take_draw();
  std::int64_t* values = x.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const PhiloxBlock block = philox(seed, draw, i);
    // 64 random bits against a bound of at most 32: the bias is below 2^-32.
    const std::uint64_t bits = (std::uint64_t{block.word[0]} << 32) | block.word[1];
    values[i] = static_cast<std::int64_t>(
        (static_cast<unsigned __int128>(bits) * static_cast<std::uint64_t>(bound)) >> 64);
  }
  return x;
}

Tensor rand_permutation(std::int64_t n, Generator& rng) {
  Tensor order = arange(n);
  const std::uint64_t seed = rng.seed(), draw = rng.take_draw();
  std::int64_t* values = order.mutable_data<std::int64_t>();
  for (std::int64_t i = n - 1; i > 0; --i) {
    const PhiloxBlock block = philox(seed, draw, i);
    const std::uint64_t bits = (std::uint64_t{block.word[0]} << 32) | block.word[1];
    const auto j = static_cast<std::int64_t>(
        (static_cast<unsigned __int128>(bits) * static_cast<std::uint64_t>(i + 1)) >> 64);
    std::swap(values[i], values[j]);
  }
  return order;
}

}  // namespace lipgrad
