#include <lipgrad/ops/kernels/activation.h>

#include <doctest/doctest.h>

#include <functional>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double pdf(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double inner(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

struct Case {
  const char* name;
  Activation f;
  double a;
  std::function<double(double)> value, slope;
  double left, right;  // limits at -inf and inf
  double near, far;    // largest error of the float value in ulp, for |x| <= 4 and for all x
};

const Case cases[] = {
    {"identity", Activation::identity, 0, [](double x) { return x; }, [](double) { return 1.0; },
     -inf, inf, 0, 0},
    {"relu", Activation::relu, 0, [](double x) { return x > 0 ? x : 0; },
     [](double x) { return x > 0 ? 1.0 : 0.0; }, 0, inf, 0, 0},
    {"leaky_relu", Activation::leaky_relu, 0.25, [](double x) { return x > 0 ? x : 0.25 * x; },
     [](double x) { return x > 0 ? 1.0 : 0.25; }, -inf, inf, 0, 0.5},
    {"elu", Activation::elu, 1.5, [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); },
     [](double x) { return x > 0 ? 1.0 : 1.5 * std::exp(x); }, -1.5, inf, 3, 3},
    {"gelu", Activation::gelu, 0, [](double x) { return x * cdf(x); },
     [](double x) { return cdf(x) + x * pdf(x); }, 0, inf, 12, 120},
    {"gelu_tanh", Activation::gelu_tanh, 0, [](double x) { return x * sigmoid(2 * inner(x)); },
     [](double x) {
       const double s = sigmoid(2 * inner(x)), c = sigmoid(-2 * inner(x));
       return s + x * s * c * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
     },
     0, inf, 20, 250},
    {"silu", Activation::silu, 0, [](double x) { return x * sigmoid(x); },
     [](double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }, 0, inf, 4, 120},
    {"sigmoid", Activation::sigmoid, 0, sigmoid, [](double x) { return sigmoid(x) * sigmoid(-x); },
     0, 1, 3, 3},
    {"tanh", Activation::tanh, 0, [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, -1, 1, 4, 4},
    {"softplus", Activation::softplus, 2,
     [](double x) { return (std::max(2 * x, 0.0) + std::log1p(std::exp(-std::abs(2 * x)))) / 2; },
     [](double x) { return sigmoid(2 * x); }, 0, inf, 4, 4},
};

template <class T>
void check_case(const Case& c, double ulp_limit, double slope_limit) {
  CAPTURE(c.name);
  for (std::int64_t n : {0, 1, 3, 8, 17, 20000}) {
    const std::vector<T> x = random_values<T>(n, 7, -4, 4), gy = random_values<T>(n, 8);
    std::vector<T> y(n), gx(n);
    cpu::activation(c.f, c.a, n, x.data(), y.data());
    const T* saved = saves_result(c.f, c.a) ? y.data() : x.data();
    cpu::activation_backward(c.f, c.a, n, saved, gy.data(), gx.data());
    double worst = 0, worst_slope = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      worst = std::max(worst, ulps(y[i], c.value(x[i])));
      worst_slope = std::max(worst_slope, std::abs(gx[i] - gy[i] * c.slope(x[i])));
    }
    CHECK(worst <= ulp_limit);
    CHECK(worst_slope <= slope_limit);
  }
  const std::vector<T> x = {T(-inf),  T(inf),  std::numeric_limits<T>::quiet_NaN(),
                            T(-1e30), T(1e30), T(-800),
                            T(800),   T(0)};
  const std::int64_t n = x.size();
  std::vector<T> y(n), gx(n);
  const std::vector<T> ones(n, T(1));
  cpu::activation(c.f, c.a, n, x.data(), y.data());
  const T* saved = saves_result(c.f, c.a) ? y.data() : x.data();
  cpu::activation_backward(c.f, c.a, n, saved, ones.data(), gx.data());
  CHECK(y[0] == T(c.left));
  CHECK(y[1] == T(c.right));
  CHECK(std::isnan(y[2]));
  for (std::int64_t i = 3; i < n; ++i) CHECK(!std::isnan(y[i]));
  for (std::int64_t i = 0; i < n; ++i) {
    CAPTURE(x[i]);
    if (i == 2) continue;
    CHECK(gx[i] >= 0);
    CHECK(gx[i] <= 1.5);
  }
}

TEST_CASE("activation kernels: values, slopes, limits") {
  for (const Case& c : cases) {
    check_case<float>(c, c.near, 4e-6);
    check_case<double>(c, std::max(c.near, 40.0), 1e-14);  // the reference errs, too
  }
}

TEST_CASE("activation kernels: floats of every size") {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x58000000u; bits += 4099) {  // up to 5.6e14, both signs
    float v;
    std::memcpy(&v, &bits, 4);
    x.push_back(v);
    x.push_back(-v);
  }
  std::vector<float> y(x.size());
  for (const Case& c : cases) {
    CAPTURE(c.name);
    cpu::activation(c.f, c.a, x.size(), x.data(), y.data());
    double worst = 0, where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], c.value(x[i]));
      if (error <= worst) continue;
      worst = error;
      where = x[i];
    }
    CAPTURE(where);
    CHECK(worst <= c.far);
  }
}

TEST_CASE("activation kernels: bias, blocks, threads") {
  const std::int64_t rows = 301, cols = 37, n = rows * cols;
  const std::vector<float> x = random_values<float>(n, 1), bias = random_values<float>(cols, 2);
  std::vector<float> y(n), sum(n), expected(n);
  for (std::int64_t i = 0; i < n; ++i) sum[i] = x[i] + bias[i % cols];
  cpu::activation(Activation::silu, 0, n, sum.data(), expected.data());
  cpu::bias_activation(Activation::silu, 0, rows, cols, x.data(), bias.data(), y.data());
  CHECK(same_bits(y, expected));
  y = x;
  cpu::bias_activation<float>(Activation::silu, 0, rows, cols, y.data(), bias.data(), y.data());
  CHECK(same_bits(y, expected));
  cpu::bias_activation(Activation::identity, 0, rows, cols, x.data(), bias.data(), y.data());
  CHECK(same_bits(y, sum));
  cpu::bias_activation<float>(Activation::identity, 0, rows, cols, x.data(), nullptr, y.data());
  CHECK(same_bits(y, x));
  CHECK(same_on_any_threads([] {
    const std::vector<float> in = random_values<float>(100001, 3);
    std::vector<float> out(in.size());
    cpu::activation(Activation::gelu, 0, in.size(), in.data(), out.data());
    return out;
  }));
}

}  // namespace
}  // namespace lipgrad
