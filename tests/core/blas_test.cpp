#include <lipgrad/core/blas.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

using std::int64_t;

template <class T>
std::vector<T> random_values(int64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(uniform(rng));
  return values;
}

struct Case {
  bool trans_a, trans_b;
  int64_t m, n, k;
  int64_t pad = 0;  // leading dimensions beyond the stored rows
  double alpha = 1, beta = 0;
};

// The worst difference from the product in double, relative to the sum of the terms' magnitudes.
template <class T>
void check_product(const Case& p) {
  CAPTURE(p.trans_a);
  CAPTURE(p.trans_b);
  CAPTURE(p.m);
  CAPTURE(p.n);
  CAPTURE(p.k);
  const int64_t lda = (p.trans_a ? p.m : p.k) + p.pad, ldb = (p.trans_b ? p.k : p.n) + p.pad;
  const int64_t ldc = p.n + p.pad;
  const auto a = random_values<T>((p.trans_a ? p.k : p.m) * lda + 1, 1);
  const auto b = random_values<T>((p.trans_b ? p.n : p.k) * ldb + 1, 2);
  auto start = random_values<T>(p.m * ldc + 1, 3);
  if (p.beta == 0)  // must not be read
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) start[i * ldc + j] = std::numeric_limits<T>::quiet_NaN();
  const auto run = [&](int threads) {
    set_num_threads(threads);
    auto c = start;
    gemm<T>(p.trans_a, p.trans_b, p.m, p.n, p.k, T(p.alpha), a.data(), lda, b.data(), ldb,
            T(p.beta), c.data(), ldc);
    return c;
  };
  const auto c = run(1);
  for (int threads : {2, 3}) {
    const auto other = run(threads);
    CHECK(std::equal(c.begin(), c.end(), other.begin(), other.end(),
                     [](T x, T y) { return x == y || (std::isnan(x) && std::isnan(y)); }));
  }
  double worst = 0;
  bool padding_kept = true;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      const int64_t at = i * ldc + j;
      if (j >= p.n) {
        padding_kept &= c[at] == start[at];
        continue;
      }
      double sum = 0, magnitude = 1;
      for (int64_t l = 0; l < p.k; ++l) {
        const double term = double(a[p.trans_a ? l * lda + i : i * lda + l]) *
                            double(b[p.trans_b ? j * ldb + l : l * ldb + j]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double expected = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * double(start[at]));
      const double error = std::abs(double(c[at]) - expected) / magnitude;
      if (!(error <= worst)) worst = error;
    }
  CHECK(padding_kept);
  CHECK(worst < 4 * std::numeric_limits<T>::epsilon());
}

void check_both(const Case& p) {
  check_product<float>(p);
  check_product<double>(p);
}

}  // namespace

TEST_CASE("gemm at awkward sizes, all transposes") {
  const int before = num_threads();
  for (bool trans_a : {false, true})
    for (bool trans_b : {false, true}) {
      for (int64_t m : {0, 1, 3, 17, 65})
        for (int64_t n : {0, 1, 3, 7, 16, 33, 65})
          for (int64_t k : {0, 1, 3, 32, 63, 65})
            check_both({trans_a, trans_b, m, n, k, 5 * ((m + n + k) % 2)});
      check_both({trans_a, trans_b, 371, 371, 371});
      check_both({trans_a, trans_b, 371, 7, 371, 2});
      check_both({trans_a, trans_b, 131, 128, 300, 1});
      check_both({trans_a, trans_b, 63, 700, 9});
      check_both({trans_a, trans_b, 3, 9, 5000, 1});
      check_both({trans_a, trans_b, 40, 64, 3001, 0});
    }
  set_num_threads(before);
}

TEST_CASE("gemm scales and adds") {
  const int before = num_threads();
  for (double alpha : {0.0, 1.0, -0.5})
    for (double beta : {0.0, 1.0, 0.25}) {
      check_both({false, true, 33, 20, 0, 3, alpha, beta});
      check_both({false, true, 33, 20, 70, 3, alpha, beta});
      check_both({true, false, 20, 24, 4000, 3, alpha, beta});
      check_both({false, false, 400, 390, 30, 3, alpha, beta});
      check_both({true, true, 200, 450, 100, 1, alpha, beta});
    }
  set_num_threads(before);
}

TEST_CASE("gemm calls its epilogue once for every element, when it is final") {
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& s : {Shape{5, 7, 0}, Shape{5, 7, 3}, Shape{800, 500, 64}, Shape{16, 8, 9000}}) {
    std::vector<float> a(s.m * s.k, 0.5f), b(s.k * s.n, 2.0f), c(s.m * s.n);
    auto add_one = [&](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j) c[i * s.n + j] += 1;
    };
    gemm<float>(false, false, s.m, s.n, s.k, 1, a.data(), s.k, b.data(), s.n, 0, c.data(), s.n,
                add_one);
    bool right = true;
    for (float value : c) right &= value == static_cast<float>(s.k) + 1;
    CHECK(right);
  }
}

TEST_CASE("gemm_batched equals one product after another, shared operands included") {
  const int before = num_threads();
  struct Shape {
    int64_t batch, m, n, k;
  };
  for (const Shape& s :
       {Shape{0, 3, 3, 3}, Shape{1, 5, 4, 3}, Shape{7, 1, 1, 1}, Shape{50, 49, 49, 32},
        Shape{3, 0, 4, 2}, Shape{3, 4, 5, 0}, Shape{2, 300, 200, 200}})
    for (bool share_a : {false, true})
      for (bool share_b : {false, true}) {
        const int64_t stride_a = share_a ? 0 : s.m * s.k + 3, stride_b = share_b ? 0 : s.k * s.n;
        const auto a = random_values<double>(s.batch * (s.m * s.k + 3) + 1, 4);
        const auto b = random_values<double>(s.batch * s.k * s.n + 1, 5);
        std::vector<double> expected(s.batch * s.m * s.n, 1.5), two = expected, one = expected;
        for (int64_t i = 0; i < s.batch; ++i)
          for (int64_t row = 0; row < s.m; ++row)
            for (int64_t column = 0; column < s.n; ++column) {
              double sum = 0;
              for (int64_t l = 0; l < s.k; ++l)
                sum += a[i * stride_a + row * s.k + l] * b[i * stride_b + column * s.k + l];
              expected[(i * s.m + row) * s.n + column] = 2 * sum + 0.5 * 1.5;
            }
        set_num_threads(1);
        gemm_batched<double>(s.batch, false, true, s.m, s.n, s.k, 2, a.data(), s.k, stride_a,
                             b.data(), s.k, stride_b, 0.5, one.data(), s.n, s.m * s.n);
        set_num_threads(2);
        gemm_batched<double>(s.batch, false, true, s.m, s.n, s.k, 2, a.data(), s.k, stride_a,
                             b.data(), s.k, stride_b, 0.5, two.data(), s.n, s.m * s.n);
        CHECK(one == two);
        double worst = 0;
        for (std::size_t i = 0; i < one.size(); ++i)
          worst = std::max(worst, std::abs(one[i] - expected[i]));
        CHECK(worst < 1e-12);
      }
  set_num_threads(before);
}

TEST_CASE("gemm refuses sizes that do not fit") {
  std::vector<float> x(16);
  const auto call = [&](int64_t m, int64_t n, int64_t k, int64_t lda) {
    gemm<float>(false, false, m, n, k, 1, x.data(), lda, x.data(), 2, 0, x.data(), 2);
  };
  CHECK_THROWS_AS(call(-1, 2, 2, 2), Error);
  CHECK_THROWS_WITH_AS(call(2, 2, 3, 2),
                       "gemm: leading dimensions 2, 2, 2 are too small for 2 x 2 x 3", Error);
  CHECK_THROWS_AS(call(2, 2, 2, int64_t{1} << 31), Error);
}

}  // namespace lipgrad
