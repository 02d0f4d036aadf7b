#include <lipgrad/ops/kernels/reduce.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

struct Sizes {
  std::int64_t outer, n, inner;
  std::int64_t numel() const { return outer * n * inner; }
  std::int64_t small() const { return outer * inner; }
  std::int64_t at(std::int64_t j, std::int64_t i) const {
    return (j / inner * n + i) * inner + j % inner;
  }
};

const Sizes sizes[] = {{1, 1, 1},     {5, 7, 1}, {3, 8, 1},   {2, 3000, 1},  {1, 100001, 1},
                       {3, 40000, 1}, {1, 9, 3}, {4, 5, 17},  {1, 5000, 33}, {2, 70, 2100},
                       {1, 3000, 1},  {0, 3, 4}, {200, 4, 8}, {1, 20000, 2}};

template <class T>
void check_reductions(Sizes s) {
  CAPTURE(s.outer);
  CAPTURE(s.n);
  CAPTURE(s.inner);
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-13;
  const std::vector<T> x = random_values<T>(s.numel(), 1, -1, 3),
                       gy = random_values<T>(s.small(), 2);
  std::vector<T> sum(s.small()), mean(s.small()), var(s.small()), top(s.small()), lse(s.small());
  std::vector<T> gvar(s.numel()), gtop(s.numel()), glse(s.numel());
  std::vector<std::int64_t> index(s.small());
  const double correction = s.n > 1 ? 1 : 0;
  cpu::sum(s.outer, s.n, s.inner, 0.5, x.data(), sum.data());
  cpu::var(s.outer, s.n, s.inner, correction, x.data(), mean.data(), var.data());
  cpu::max(s.outer, s.n, s.inner, x.data(), top.data(), index.data());
  cpu::logsumexp(s.outer, s.n, s.inner, x.data(), lse.data());
  cpu::var_backward(s.outer, s.n, s.inner, correction, x.data(), mean.data(), gy.data(),
                    gvar.data());
  cpu::max_backward(s.outer, s.n, s.inner, index.data(), gy.data(), gtop.data());
  cpu::logsumexp_backward(s.outer, s.n, s.inner, x.data(), lse.data(), gy.data(), glse.data());
  double worst = 0;
  const auto compare = [&](double got, double expected) {
    worst = std::max(worst, std::abs(got - expected) / std::max(1.0, std::abs(expected)));
  };
  for (std::int64_t j = 0; j < s.small(); ++j) {
    double total = 0, squares = 0, exps = 0;
    std::int64_t best = 0;
    for (std::int64_t i = 0; i < s.n; ++i) {
      total += x[s.at(j, i)];
      exps += std::exp(double(x[s.at(j, i)]));
      if (x[s.at(j, i)] > x[s.at(j, best)]) best = i;
    }
    for (std::int64_t i = 0; i < s.n; ++i) squares += std::pow(x[s.at(j, i)] - total / s.n, 2);
    compare(sum[j], 0.5 * total);
    compare(mean[j], total / s.n);
    compare(var[j], squares / (s.n - correction));
    compare(lse[j], std::log(exps));
    CHECK(index[j] == best);
    CHECK(top[j] == x[s.at(j, best)]);
    for (std::int64_t i = 0; i < s.n; ++i) {
      compare(gvar[s.at(j, i)], gy[j] * 2 * (x[s.at(j, i)] - total / s.n) / (s.n - correction));
      compare(gtop[s.at(j, i)], i == best ? gy[j] : T(0));
      compare(glse[s.at(j, i)], gy[j] * std::exp(double(x[s.at(j, i)])) / exps);
    }
  }
  CHECK(worst <= tolerance);
}

TEST_CASE("reduce kernels: values and gradients") {
  for (const Sizes& s : sizes) {
    check_reductions<float>(s);
    check_reductions<double>(s);
  }
}

TEST_CASE("reduce kernels: a long float sum keeps its digits") {
  const std::int64_t n = 10'000'000;
  const std::vector<float> x = random_values<float>(n, 3, 0, 1);
  double expected = 0;
  for (float v : x) expected += v;
  float all, columns[2];
  cpu::sum(1, n, 1, 1.0, x.data(), &all);
  cpu::sum(1, n / 2, 2, 1.0, x.data(), columns);
  CHECK(std::abs(all - expected) <= 2e-7 * expected);
  CHECK(std::abs(double(columns[0]) + columns[1] - expected) <= 2e-7 * expected);
}

TEST_CASE("reduce kernels: no terms, ties, infinities, NaN") {
  float y[2] = {7, 7};
  cpu::sum<float>(1, 0, 2, 1.0, nullptr, y);
  CHECK(y[0] == 0);
  cpu::logsumexp<float>(1, 0, 2, nullptr, y);
  CHECK(y[1] == -inf);
  const float nan = std::numeric_limits<float>::quiet_NaN(), low = static_cast<float>(-inf);
  const std::vector<std::vector<float>> rows = {
      {1, 3, 3}, {low, low, low}, {1, nan, nan}, {nan, 2, 5}, {1, -low, 2}};
  const std::int64_t at[] = {1, 0, 1, 0, 1};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<float> wide(6);  // the same as two columns
    for (int i = 0; i < 6; ++i) wide[i] = rows[r][i / 2];
    for (std::int64_t inner : {1, 2}) {
      const float* x = inner == 1 ? rows[r].data() : wide.data();
      std::int64_t index[2];
      cpu::max(1, 3, inner, x, y, index);
      CHECK(index[inner - 1] == at[r]);
      CHECK(std::memcmp(&y[inner - 1], &rows[r][at[r]], 4) == 0);
      cpu::logsumexp(1, 3, inner, x, y);
      if (r == 1) CHECK(y[inner - 1] == low);
      if (r == 2 || r == 3) CHECK(std::isnan(y[inner - 1]));
      if (r == 4) CHECK(y[inner - 1] == -low);
      const float gy[2] = {1, 1};
      std::vector<float> gx(3 * inner);
      cpu::logsumexp_backward(1, 3, inner, x, y, gy, gx.data());
      if (r == 1) CHECK(gx[0] == 0);
    }
  }
}

TEST_CASE("reduce kernels: the number of threads changes no bit") {
  for (const Sizes& s : sizes) {
    CHECK(same_on_any_threads([&] {
      const std::vector<float> x = random_values<float>(s.numel(), 1);
      std::vector<float> y(3 * s.small());
      cpu::sum(s.outer, s.n, s.inner, 1.0, x.data(), y.data());
      cpu::logsumexp(s.outer, s.n, s.inner, x.data(), y.data() + s.small());
      std::vector<float> mean(s.small());
      cpu::var(s.outer, s.n, s.inner, 0, x.data(), mean.data(), y.data() + 2 * s.small());
      return y;
    }));
  }
}

}  // namespace
}  // namespace lipgrad
