#include <lipgrad/ops/kernels/elementwise.h>

#include <doctest/doctest.h>

#include <functional>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct UnaryCase {
  const char* name;
  Unary op;
  double a, b;
  std::function<double(double)> value, slope;
  double low, high, ulps;
};

const UnaryCase unary_cases[] = {
    {"neg", Unary::neg, 0, 0, [](double x) { return -x; }, [](double) { return -1.0; }, -3, 3, 0},
    {"exp", Unary::exp, 0, 0, [](double x) { return std::exp(x); },
     [](double x) { return std::exp(x); }, -80, 80, 2},
    {"log", Unary::log, 0, 0, [](double x) { return std::log(x); }, [](double x) { return 1 / x; },
     1e-3, 50, 2},
    {"sqrt", Unary::sqrt, 0, 0, [](double x) { return std::sqrt(x); },
     [](double x) { return 0.5 / std::sqrt(x); }, 1e-3, 50, 0.5},
    {"abs", Unary::abs, 0, 0, [](double x) { return std::abs(x); },
     [](double x) { return x > 0   ? 1.0
                           : x < 0 ? -1.0
                                   : 0.0; }, -3, 3, 0},
    {"square", Unary::square, 0, 0, [](double x) { return x * x; }, [](double x) { return 2 * x; },
     -3, 3, 0.5},
    {"reciprocal", Unary::reciprocal, 0, 0, [](double x) { return 1 / x; },
     [](double x) { return -1 / (x * x); }, 0.1, 9, 0.5},
    {"add_scalar", Unary::add_scalar, 1.5, 0, [](double x) { return x + 1.5; },
     [](double) { return 1.0; }, -3, 3, 0.5},
    {"mul_scalar", Unary::mul_scalar, -2.5, 0, [](double x) { return x * -2.5; },
     [](double) { return -2.5; }, -3, 3, 0.5},
    {"div_scalar", Unary::div_scalar, 8, 0, [](double x) { return x / 8; },
     [](double) { return 0.125; }, -3, 3, 0.5},
    {"scalar_sub", Unary::scalar_sub, 1, 0, [](double x) { return 1 - x; },
     [](double) { return -1.0; }, -3, 3, 0.5},
    {"scalar_div", Unary::scalar_div, 2, 0, [](double x) { return 2 / x; },
     [](double x) { return -2 / (x * x); }, 0.1, 9, 0.5},
    {"pow_scalar", Unary::pow_scalar, 2.5, 0, [](double x) { return std::pow(x, 2.5); },
     [](double x) { return 2.5 * std::pow(x, 1.5); }, 0, 9, 1},
    {"clamp", Unary::clamp, -1, 0.5, [](double x) { return std::min(std::max(x, -1.0), 0.5); },
     [](double x) { return x >= -1 && x <= 0.5 ? 1.0 : 0.0; }, -3, 3, 0},
};

template <class T>
void check_unary(const UnaryCase& c) {
  CAPTURE(c.name);
  for (std::int64_t n : {0, 1, 5, 16, 40001}) {
    const std::vector<T> x = random_values<T>(n, 5, c.low, c.high), gy = random_values<T>(n, 6);
    std::vector<T> y(n), gx(n);
    cpu::unary(c.op, c.a, c.b, n, x.data(), y.data());
    const T* saved = saves_result(c.op) ? y.data() : saves_nothing(c.op) ? nullptr : x.data();
    cpu::unary_backward(c.op, c.a, c.b, n, saved, gy.data(), gx.data());
    double worst = 0, worst_gradient = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      worst = std::max(worst, ulps(y[i], c.value(x[i])));
      worst_gradient = std::max(worst_gradient, ulps(gx[i], gy[i] * c.slope(x[i])));
    }
    CHECK(worst <= c.ulps + 0.01);
    CHECK(worst_gradient <= 4);
  }
}

TEST_CASE("unary kernels: values and gradients") {
  for (const UnaryCase& c : unary_cases) {
    check_unary<float>(c);
    check_unary<double>(c);
  }
}

TEST_CASE("unary kernels: extreme values") {
  const std::vector<float> x = {float(-inf), -200,  -100, -90,        0,
                                88.7f,       88.8f, 200,  float(inf), float(nan)};
  const std::int64_t n = x.size();
  std::vector<float> y(n);
  cpu::unary(Unary::exp, 0, 0, n, x.data(), y.data());
  for (std::int64_t i = 0; i < n; ++i) CHECK(ulps(y[i], std::exp(double(x[i]))) <= 2);
  const std::vector<float> z = {float(-inf), -1, -0.0f, 0,          1e-45f,
                                1e-39f,      1,  3e38f, float(inf), float(nan)};
  cpu::unary(Unary::log, 0, 0, n, z.data(), y.data());
  for (std::int64_t i = 0; i < n; ++i) CHECK(ulps(y[i], std::log(double(z[i]))) <= 2);
  cpu::unary(Unary::clamp, -1, 1, n, z.data(), y.data());
  CHECK(y[0] == -1);
  CHECK(y[8] == 1);
  CHECK(std::isnan(y[9]));
  const float zero = 0, one = 1;
  float g = 5;
  cpu::unary_backward(Unary::abs, 0, 0, 1, &zero, &one, &g);
  CHECK(g == 0);
  cpu::unary_backward(Unary::pow_scalar, 0, 0, 1, &zero, &one, &g);
  CHECK(g == 0);
}

double reference(Binary op, double u, double v) {
  switch (op) {
    case Binary::add:
      return u + v;
    case Binary::sub:
      return u - v;
    case Binary::mul:
      return u * v;
    case Binary::div:
      return u / v;
    case Binary::pow:
      return std::pow(u, v);
    case Binary::minimum:
      return std::min(u, v);
    case Binary::maximum:
      return std::max(u, v);
  }
  return 0;
}

// dL/du and dL/dv of the op for dL/dy = 1.
std::pair<double, double> slopes(Binary op, double u, double v) {
  switch (op) {
    case Binary::div:
      return {1 / v, -u / (v * v)};
    case Binary::pow:
      return {v * std::pow(u, v - 1), std::pow(u, v) * std::log(u)};
    case Binary::minimum:
      return {u < v ? 1 : 0, v < u ? 1 : 0};
    case Binary::maximum:
      return {u > v ? 1 : 0, v > u ? 1 : 0};
    default:
      return {0, 0};
  }
}

using Sizes = std::vector<std::int64_t>;

std::int64_t count(const Sizes& s) {
  std::int64_t n = 1;
  for (std::int64_t v : s) n *= v;
  return n;
}

// The offset of the result's element `at` in an operand.
std::int64_t offset(std::int64_t at, const Sizes& out, const Sizes& in) {
  std::int64_t result = 0, step = 1;
  for (std::size_t d = out.size(), o = in.size(); d-- > 0;) {
    const std::int64_t index = at % out[d];
    at /= out[d];
    if (o == 0) continue;
    --o;
    if (in[o] != 1) result += index * step;
    step *= in[o];
  }
  return result;
}

template <class T>
void check_binary(const Sizes& out, const Sizes& us, const Sizes& vs) {
  Broadcast two(out.size(), out.data());
  two.set_operand(0, us.size(), us.data());
  two.set_operand(1, vs.size(), vs.data());
  Broadcast three = two;
  three.set_operand(2, out.size(), out.data());
  two.collapse(2);
  three.collapse(3);
  const std::vector<T> u = random_values<T>(count(us), 1, 0.5, 3),
                       v = random_values<T>(count(vs), 2, 0.5, 3);
  const std::vector<T> gy(count(out), T(1));
  std::vector<T> y(count(out));
  for (Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div, Binary::pow,
                    Binary::minimum, Binary::maximum}) {
    cpu::binary(op, two, u.data(), v.data(), y.data());
    double worst = 0;
    for (std::int64_t i = 0; i < count(out); ++i) {
      worst =
          std::max(worst, ulps(y[i], reference(op, u[offset(i, out, us)], v[offset(i, out, vs)])));
    }
    CHECK(worst <= 1.01);
    if (op == Binary::add || op == Binary::sub || op == Binary::mul) continue;
    for (int which : {0, 1}) {
      cpu::binary_backward(op, which, three, u.data(), v.data(), gy.data(), y.data());
      worst = 0;
      for (std::int64_t i = 0; i < count(out); ++i) {
        const auto [du, dv] = slopes(op, u[offset(i, out, us)], v[offset(i, out, vs)]);
        worst = std::max(worst, std::abs(y[i] - (which == 0 ? du : dv)));
      }
      CHECK(worst <= (sizeof(T) == 4 ? 1e-4 : 1e-12));
    }
  }
  std::vector<std::uint8_t> condition(count(us));
  for (std::size_t i = 0; i < condition.size(); ++i) condition[i] = i % 3 == 0;
  Broadcast w(out.size(), out.data());
  w.set_operand(0, us.size(), us.data());
  w.set_operand(1, vs.size(), vs.data());
  w.set_operand(2, us.size(), us.data());
  w.collapse(3);
  cpu::where(w, condition.data(), v.data(), u.data(), y.data());
  bool equal = true;
  for (std::int64_t i = 0; i < count(out); ++i) {
    const std::int64_t at = offset(i, out, us);
    equal = equal && y[i] == (condition[at] ? v[offset(i, out, vs)] : u[at]);
  }
  CHECK(equal);
  cpu::where<T>(w, condition.data(), nullptr, u.data(), y.data());
  for (std::int64_t i = 0; i < count(out); ++i)
    equal = equal && (!condition[offset(i, out, us)] || y[i] == 0);
  CHECK(equal);
}

TEST_CASE("binary kernels: broadcasting") {
  const std::vector<std::vector<Sizes>> shapes = {
      {{}, {}, {}},
      {{7}, {7}, {}},
      {{0, 3}, {0, 3}, {3}},
      {{50, 17}, {50, 17}, {50, 17}},
      {{50, 17}, {50, 17}, {17}},
      {{50, 17}, {50, 1}, {50, 17}},
      {{50, 17}, {50, 1}, {17}},
      {{3, 4, 5}, {3, 1, 5}, {4, 1}},
      {{2, 3, 2, 3, 2, 3, 2, 3}, {2, 1, 2, 1, 2, 1, 2, 1}, {3, 1, 3, 1, 3}},
      {{2, 70000}, {2, 1}, {1, 70000}},
      {{40001, 3}, {40001, 3}, {40001, 1}},
  };
  for (const auto& s : shapes) {
    check_binary<float>(s[0], s[1], s[2]);
    check_binary<double>(s[0], s[1], s[2]);
  }
}

TEST_CASE("binary kernels: ties, zero powers, NaN") {
  const Broadcast one(1);
  const double u = 2, zero = 0, three = 3, not_a_number = nan, g = 1;
  double y = 0;
  cpu::binary_backward(Binary::maximum, 0, one, &u, &u, &g, &y);
  CHECK(y == 0.5);
  cpu::binary_backward(Binary::minimum, 1, one, &u, &u, &g, &y);
  CHECK(y == 0.5);
  cpu::binary_backward(Binary::pow, 0, one, &zero, &zero, &g, &y);
  CHECK(y == 0);
  cpu::binary_backward(Binary::pow, 1, one, &zero, &three, &g, &y);
  CHECK(y == 0);
  for (Binary op : {Binary::minimum, Binary::maximum}) {
    cpu::binary(op, one, &u, &not_a_number, &y);
    CHECK(std::isnan(y));
    cpu::binary(op, one, &not_a_number, &u, &y);
    CHECK(std::isnan(y));
  }
}

TEST_CASE("elementwise kernels: the number of threads changes no bit") {
  const std::vector<float> u = random_values<float>(300000, 1), v = random_values<float>(100, 2);
  CHECK(same_on_any_threads([&] {
    const Sizes out = {3000, 100};
    Broadcast s(2, out.data());
    s.set_operand(0, 2, out.data());
    s.set_operand(1, 1, out.data() + 1);
    s.collapse(2);
    std::vector<float> y(300000);
    cpu::binary(Binary::div, s, u.data(), v.data(), y.data());
    cpu::unary(Unary::exp, 0, 0, 300000, y.data(), y.data());
    return y;
  }));
}

}  // namespace
}  // namespace lipgrad
