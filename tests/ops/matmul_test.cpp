#include <lipgrad/ops/matmul.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

// One product by the definition, over any broadcast batch.
double element(const Tensor& a, const Tensor& b, MatmulOptions options, const Shape& c,
               std::int64_t at) {
  const std::int64_t n = c[c.rank() - 1], m = c[c.rank() - 2];
  const std::int64_t j = at % n, i = at / n % m;
  std::int64_t batch = at / n / m;
  const auto rows_of = [](const Tensor& x) { return x.size(-2); };
  std::int64_t at_a = 0, at_b = 0, step_a = rows_of(a) * a.size(-1),
               step_b = rows_of(b) * b.size(-1);
  for (int d = c.rank() - 3; d >= 0; --d) {
    const std::int64_t index = batch % c[d];
    batch /= c[d];
    const int da = d - c.rank() + a.rank(), db = d - c.rank() + b.rank();
    if (da >= 0) {
      if (a.size(da) > 1) at_a += index * step_a;
      step_a *= a.size(da);
    }
    if (db >= 0) {
      if (b.size(db) > 1) at_b += index * step_b;
      step_b *= b.size(db);
    }
  }
  const std::int64_t k = options.transpose_a ? rows_of(a) : a.size(-1);
  double sum = 0;
  for (std::int64_t l = 0; l < k; ++l)
    sum += a.data<double>()[at_a + (options.transpose_a ? l * m + i : i * k + l)] *
           b.data<double>()[at_b + (options.transpose_b ? j * k + l : l * n + j)];
  return sum;
}

Shape swapped(const Shape& s, bool swap) {
  return swap ? s.with(s.rank() - 1, s[s.rank() - 2]).with(s.rank() - 2, s[s.rank() - 1]) : s;
}

}  // namespace

TEST_CASE("matmul: transposes and broadcast batches") {
  struct Pair {
    Shape a, b, c;
  };
  const Pair pairs[] = {{{2, 3}, {3, 4}, {2, 4}},
                        {{5, 2, 3}, {5, 3, 4}, {5, 2, 4}},
                        {{5, 2, 3}, {3, 4}, {5, 2, 4}},
                        {{2, 3}, {5, 3, 4}, {5, 2, 4}},
                        {{6, 1, 2, 3}, {4, 3, 5}, {6, 4, 2, 5}},
                        {{2, 1, 3, 2, 3}, {1, 4, 1, 3, 2}, {2, 4, 3, 2, 2}},
                        {{1, 1, 2, 3}, {1, 3, 2}, {1, 1, 2, 2}},
                        {{3, 0, 4}, {4, 2}, {3, 0, 2}},
                        {{0, 2, 4}, {4, 2}, {0, 2, 2}},
                        {{3, 2, 0}, {3, 0, 2}, {3, 2, 2}}};
  Generator rng{1};
  for (const Pair& p : pairs)
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const Tensor a = randn(swapped(p.a, ta), f64, rng), b = randn(swapped(p.b, tb), f64, rng);
        CAPTURE(a.shape().str());
        CAPTURE(b.shape().str());
        const Tensor c = matmul(a, b, {ta, tb});
        REQUIRE(c.shape() == p.c);
        double worst = 0;
        for (std::int64_t at = 0; at < c.numel(); ++at)
          worst =
              std::max(worst, std::abs(c.data<double>()[at] - element(a, b, {ta, tb}, p.c, at)));
        CHECK(worst < 1e-13);
      }
}

TEST_CASE("matmul: errors say what was given") {
  const Tensor x = zeros({3}), y = zeros({3, 4}), z = zeros({2, 5, 4});
  CHECK_THROWS_WITH_AS(matmul(x, y),
                       "matmul: expects at least two dimensions, got (3) and (3, 4); reshape a "
                       "vector to (1, n) or (n, 1)",
                       Error);
  CHECK_THROWS_WITH_AS(matmul(y, y), "matmul: inner sizes 4 and 3 differ: (3, 4) times (3, 4)",
                       Error);
  CHECK_THROWS_WITH_AS(matmul(y, y, {.transpose_a = true, .transpose_b = true}),
                       "matmul: inner sizes 3 and 4 differ: (3, 4) transposed times (3, 4) "
                       "transposed",
                       Error);
  CHECK_THROWS_WITH_AS(matmul(z, zeros({3, 4, 5})), "matmul: shapes (2) and (3) do not broadcast",
                       Error);
  CHECK_THROWS_AS(matmul(y, zeros({4, 2}, f64)), Error);
  CHECK_THROWS_AS(matmul(zeros({2, 2}, i64), zeros({2, 2}, i64)), Error);
  CHECK_THROWS_AS(matmul(Tensor(), y), Error);
}

TEST_CASE("matmul: a shared right operand gets its gradient in its own shape") {
  Generator rng{2};
  Tape tape;
  const Tensor a = randn({4, 5, 3}, f64, rng), b = tape.watch(randn({1, 3, 2}, f64, rng));
  const Tensor c = matmul(a, b), g = randn(c.shape(), f64, rng);
  const Tensor gb = tape.grad(c, {b}, g)[0];
  REQUIRE(gb.shape() == b.shape());
  for (std::int64_t l = 0; l < 3; ++l)
    for (std::int64_t j = 0; j < 2; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < 20; ++i)
        sum += a.data<double>()[i * 3 + l] * g.data<double>()[i * 2 + j];
      CHECK(gb.data<double>()[l * 2 + j] == doctest::Approx(sum));
    }
}

}  // namespace lipgrad
