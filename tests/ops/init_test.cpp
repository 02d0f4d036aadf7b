#include <lipgrad/ops/init.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include <lipgrad/core/error.h>

namespace lipgrad {
namespace {

struct Moments {
  double mean = 0, deviation = 0, low = 1e300, high = -1e300;
};

Moments moments(const Initializer& initializer, const Shape& shape, std::uint64_t seed = 1,
                DType dtype = f64) {
  Generator rng{seed};
  Tensor x = empty(shape, dtype);
  initializer(x, rng);
  const Tensor y = x.to(f64);
  Moments m;
  const auto n = static_cast<double>(y.numel());
  for (std::int64_t i = 0; i < y.numel(); ++i) m.mean += y.data<double>()[i] / n;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const double value = y.data<double>()[i];
    m.deviation += (value - m.mean) * (value - m.mean) / n;
    m.low = std::min(m.low, value);
    m.high = std::max(m.high, value);
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

void check_normal(const Moments& m, double mean, double deviation) {
  CHECK(std::abs(m.mean - mean) < 0.02 * deviation);
  CHECK(m.deviation == doctest::Approx(deviation).epsilon(0.02));
  CHECK(m.high - mean > 3 * deviation);
}

void check_uniform(const Moments& m, double low, double high) {
  const double width = high - low;
  CHECK(m.low >= low);
  CHECK(m.high <= high);
  CHECK(m.low - low < 0.01 * width);
  CHECK(high - m.high < 0.01 * width);
  CHECK(std::abs(m.mean - (low + high) / 2) < 0.02 * width);
  CHECK(m.deviation == doctest::Approx(width / std::sqrt(12.0)).epsilon(0.02));
}

}  // namespace

TEST_CASE("init: moments and bounds") {
  const Shape shape{100, 200};  // fan_in 200, fan_out 100
  CHECK(moments(init::zeros(), shape).high == 0);
  CHECK(moments(init::ones(), shape).low == 1);
  const Moments constant = moments(init::constant(-2.5), shape, 1, f32);
  CHECK(constant.low == -2.5);
  CHECK(constant.high == -2.5);
  check_uniform(moments(init::uniform(-1, 3), shape), -1, 3);
  check_normal(moments(init::normal(2, 0.5), shape), 2, 0.5);
  const double bound = std::sqrt(6.0 / 300);
  check_uniform(moments(init::xavier_uniform(2), shape), -2 * bound, 2 * bound);
  check_normal(moments(init::xavier_normal(2), shape), 0, 2 * std::sqrt(2.0 / 300));
  const double kaiming = std::sqrt(2.0 / 200);
  check_normal(moments(init::kaiming_normal(), shape), 0, kaiming);
  check_normal(moments(init::kaiming_normal({.mode = init::Fan::out, .gain = 1}), shape), 0, 0.1);
  check_uniform(moments(init::kaiming_uniform(), shape, 1, f32), -std::sqrt(3.0) * kaiming,
                std::sqrt(3.0) * kaiming);
  check_uniform(moments(init::fan_uniform(16), shape), -0.25, 0.25);
  CHECK(moments(init::fan_uniform(0), {3}).high <= 1);
}

TEST_CASE("init: truncated normal") {
  for (double bound : {0.5, 2.0, 6.0}) {
    const Moments m = moments(init::truncated_normal(1, 0.1, bound), {200, 300});
    CHECK(m.low >= 1 - 0.1 * bound);
    CHECK(m.high <= 1 + 0.1 * bound);
    // The deviation of the normal distribution cut at +- b: sqrt(1 - 2 b phi(b) / (2 Phi(b) - 1)).
    const double phi = std::exp(-bound * bound / 2) / std::sqrt(2 * M_PI);
    const double deviation =
        0.1 * std::sqrt(1 - 2 * bound * phi / std::erf(bound / std::sqrt(2.0)));
    CHECK(m.deviation == doctest::Approx(deviation).epsilon(0.01));
    CHECK(std::abs(m.mean - 1) < 0.002);
  }
  // Uncut it is the quantile function of a uniform number: its distribution function gives that
  // number back.
  Generator one{7}, two{7};
  Tensor x = empty({1000}, f64);
  init::truncated_normal(0, 1, 40)(x, one);
  const Tensor u = rand_uniform({1000}, 0, 1, f64, two);
  double worst = 0;
  for (std::int64_t i = 0; i < 1000; ++i)
    worst = std::max(worst, std::abs(0.5 * std::erfc(-x.data<double>()[i] / std::sqrt(2.0)) -
                                     u.data<double>()[i]));
  CHECK(worst < 1e-15);
}

TEST_CASE("init: a seed gives the same values; one draw each") {
  for (const Initializer& initializer :
       {init::normal(), init::truncated_normal(), init::xavier_normal(), init::uniform(0, 1)}) {
    Tensor a = empty({20, 30}), b = empty({20, 30}), c = empty({20, 30});
    Generator one{5}, two{5}, three{6};
    initializer(a, one);
    initializer(b, two);
    initializer(c, three);
    CHECK(bitwise_equal(a, b));
    CHECK(!bitwise_equal(a, c));
    CHECK(one.next_draw() == 1);
  }
  CHECK(init::fans_of({6, 4, 3, 3}).in == 36);
  CHECK(init::fans_of({6, 4, 3, 3}).out == 54);
}

TEST_CASE("init: errors") {
  Generator rng{1};
  Tensor vector = empty({4});
  CHECK_THROWS_WITH_AS(init::xavier_uniform()(vector, rng),
                       "init: (4) has no fans; a weight is (out, in, ...)", Error);
  CHECK_THROWS_AS(init::uniform(1, 0), Error);
  CHECK_THROWS_AS(init::normal(0, -1), Error);
  CHECK_THROWS_AS(init::truncated_normal(0, 1, 0), Error);
}

}  // namespace lipgrad
