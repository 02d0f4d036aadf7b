#include <lipgrad/ops/kernels/softmax.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

struct Sizes {
  std::int64_t outer, n, inner;
  std::int64_t numel() const { return outer * n * inner; }
};

// Softmax (or its logarithm) and its gradient for every row, in double.
struct Reference {
  std::vector<double> y, gx;
};
template <class T>
Reference reference(Sizes s, bool log, const std::vector<T>& x, const std::uint8_t* mask,
                    const std::vector<T>& gy) {
  Reference out{std::vector<double>(s.numel()), std::vector<double>(s.numel())};
  for (std::int64_t o = 0; o < s.outer; ++o) {
    for (std::int64_t c = 0; c < s.inner; ++c) {
      std::vector<std::int64_t> on;
      for (std::int64_t i = 0; i < s.n; ++i) {
        const std::int64_t at = (o * s.n + i) * s.inner + c;
        if (mask && !mask[at]) {
          out.y[at] = log ? -inf : 0;
        } else {
          on.push_back(at);
        }
      }
      if (on.empty()) {
        for (std::int64_t i = 0; i < s.n; ++i) out.y[(o * s.n + i) * s.inner + c] = 0;
        continue;
      }
      double sum = 0, dot = 0, total = 0;
      for (std::int64_t at : on) sum += std::exp(double(x[at]));
      for (std::int64_t at : on) {
        const double p = std::exp(double(x[at])) / sum;
        out.y[at] = log ? x[at] - std::log(sum) : p;
        dot += p * gy[at];
        total += gy[at];
      }
      for (std::int64_t at : on) {
        const double p = std::exp(double(x[at])) / sum;
        out.gx[at] = log ? gy[at] - p * total : p * (gy[at] - dot);
      }
    }
  }
  return out;
}

template <class T>
void check(Sizes s, bool log, bool masked) {
  CAPTURE(s.outer);
  CAPTURE(s.n);
  CAPTURE(s.inner);
  const std::int64_t n = s.numel();
  const std::vector<T> x = random_values<T>(n, 1, -5, 5), gy = random_values<T>(n, 2);
  std::vector<std::uint8_t> mask(n);
  for (std::int64_t i = 0; i < n; ++i) mask[i] = (i / (s.n * s.inner)) % 3 == 1 ? 0 : i % 5 != 2;
  const std::uint8_t* m = masked ? mask.data() : nullptr;
  std::vector<T> y(n), gx(n);
  if (log) {
    cpu::log_softmax(s.outer, s.n, s.inner, x.data(), m, y.data());
    cpu::log_softmax_backward(s.outer, s.n, s.inner, y.data(), gy.data(), gx.data());
  } else {
    cpu::softmax(s.outer, s.n, s.inner, x.data(), m, y.data());
    cpu::softmax_backward(s.outer, s.n, s.inner, y.data(), gy.data(), gx.data());
  }
  const Reference expected = reference(s, log, x, m, gy);
  const double tolerance = sizeof(T) == 4 ? 4e-6 : 1e-14;
  double worst = 0;
  bool infinities = true;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isinf(expected.y[i])) {
      infinities = infinities && y[i] == T(expected.y[i]);
    } else {
      worst =
          std::max(worst, std::abs(y[i] - expected.y[i]) / std::max(1.0, std::abs(expected.y[i])));
    }
    const double scale = log ? std::max(1.0, double(s.n)) : 1.0;
    worst = std::max(worst, std::abs(gx[i] - expected.gx[i]) / scale);
  }
  CHECK(infinities);
  CHECK(worst <= tolerance);
}

TEST_CASE("softmax kernels: rows and columns, masked or not") {
  for (Sizes s :
       {Sizes{0, 4, 1}, {3, 1, 1}, {50, 7, 1}, {5, 8, 1}, {4, 1000, 1}, {3, 5, 2}, {2, 6, 40}}) {
    for (bool log : {false, true}) {
      for (bool masked : {false, true}) {
        check<float>(s, log, masked);
        check<double>(s, log, masked);
      }
    }
  }
}

template <class T>
void check_infinities(std::int64_t inner) {
  const T low = -std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  // Four rows of three: all -inf, some -inf, one large, one NaN.
  const T rows[4][3] = {{low, low, low}, {low, 1, 1}, {0, 1000, 0}, {0, nan, low}};
  const std::int64_t outer = inner == 1 ? 4 : 1;
  std::vector<T> x(12), y(12), gx(12);
  const std::vector<T> gy = {1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2, 3};
  const auto at = [&](int r, int i) { return inner == 1 ? r * 3 + i : i * 4 + r; };
  for (int r = 0; r < 4; ++r)
    for (int i = 0; i < 3; ++i) x[at(r, i)] = rows[r][i];
  cpu::softmax<T>(outer, 3, inner, x.data(), nullptr, y.data());
  cpu::softmax_backward(outer, 3, inner, y.data(), gy.data(), gx.data());
  const double expected[3][3] = {{0, 0, 0}, {0, 0.5, 0.5}, {0, 1, 0}};
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 3; ++i) {
      CHECK(y[at(r, i)] == doctest::Approx(expected[r][i]));
      CHECK(!std::isnan(gx[at(r, i)]));
      if (r == 0) CHECK(gx[at(r, i)] == 0);
    }
  for (int i = 0; i < 3; ++i) CHECK(std::isnan(y[at(3, i)]));
  cpu::log_softmax<T>(outer, 3, inner, x.data(), nullptr, y.data());
  cpu::log_softmax_backward(outer, 3, inner, y.data(), gy.data(), gx.data());
  for (int i = 0; i < 3; ++i) {
    CHECK(y[at(0, i)] == 0);
    CHECK(gx[at(0, i)] == 0);
    CHECK(std::isnan(y[at(3, i)]));
  }
  CHECK(y[at(1, 0)] == low);
  CHECK(gx[at(1, 0)] == 0);
  CHECK(y[at(1, 1)] == doctest::Approx(std::log(0.5)));
  CHECK(y[at(2, 0)] == doctest::Approx(-1000));
}

TEST_CASE("softmax kernels: infinities and NaN") {
  check_infinities<float>(1);
  check_infinities<float>(4);
  check_infinities<double>(1);
  check_infinities<double>(4);
}

TEST_CASE("softmax kernels: the number of threads changes no bit") {
  for (Sizes s : {Sizes{3000, 33, 1}, {20, 33, 50}}) {
    CHECK(same_on_any_threads([&] {
      std::vector<float> x = random_values<float>(s.numel(), 5), y(x.size());
      cpu::softmax<float>(s.outer, s.n, s.inner, x.data(), nullptr, y.data());
      cpu::softmax_backward(s.outer, s.n, s.inner, y.data(), x.data(), x.data());
      return x;
    }));
  }
}

}  // namespace
}  // namespace lipgrad
