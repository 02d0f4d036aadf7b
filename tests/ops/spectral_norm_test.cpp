#include <lipgrad/ops/spectral_norm.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/conv2d.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/matmul.h>

#include <support/data.h>
#include <support/tensors.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

TEST_CASE("spectral_norm: matrices whose singular values are known") {
  const auto check = [](const Tensor& w, double expected) {
    CHECK(std::abs(spectral_norm(w) - expected) <= 1e-14 * expected);
  };
  check(from_values<double>({2, 2}, {3, 0, 4, 5}), std::sqrt(45.0));  // sqrt(45), sqrt(5)
  check(from_values<double>({1, 3}, {1, -2, 2}), 3);
  check(from_values<double>({3, 1}, {1, -2, 2}), 3);
  check(full({30, 20}, -2, f32), 2 * std::sqrt(600.0));
  check(from_values<double>({2, 2}, {-7, 0, 0, 1e-200}), 7);
  check(from_values<double>({2, 2}, {3e200, 0, 4e200, 5e200}), 1e200 * std::sqrt(45.0));
  check(from_values<double>({2, 2}, {3e-200, 0, 4e-200, 5e-200}), 1e-200 * std::sqrt(45.0));
  // More dimensions count as (out, rest).
  check(from_values<double>({1, 2, 1, 2}, {1, 1, 1, 1}), 2);
  // Orthogonal by construction: a reflection, scaled.
  Generator rng{1};
  Tensor v = randn({200}, f64, rng), h = zeros({200, 200}, f64);
  double squares = 0;
  for (double x : v.to_vector<double>()) squares += x * x;
  for (std::int64_t i = 0; i < 200; ++i)
    for (std::int64_t j = 0; j < 200; ++j)
      h.mutable_data<double>()[i * 200 + j] =
          3 * ((i == j) - 2 * v.data<double>()[i] * v.data<double>()[j] / squares);
  check(h, 3);
}

TEST_CASE("largest_singular_value: its vectors; spectral_norm_of: the same value") {
  Generator rng{6};
  for (const auto& [rows, cols] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 7}, {7, 3}, {40, 40}}) {
    const Tensor w = mul(randn({rows, cols}, f64, rng), 1e150);
    std::vector<double> left(rows), right(cols);
    const double value =
        largest_singular_value(rows, cols, w.data<double>(), left.data(), right.data());
    CHECK(value == doctest::Approx(spectral_norm(w)).epsilon(1e-14));
    double length = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < cols; ++j) sum += w.data<double>()[i * cols + j] * right[j];
      CHECK(std::abs(sum - value * left[i]) < 1e-10 * value);
      length += left[i] * left[i];
    }
    CHECK(length == doctest::Approx(1).epsilon(1e-12));
    CHECK(spectral_norm_of(w).item() == doctest::Approx(value).epsilon(1e-14));
  }
  Tape tape;
  const Tensor none = tape.watch(zeros({2, 3}, f64));
  for (const double g : tape.grad(spectral_norm_of(none), {none})[0].to_vector<double>())
    CHECK(g == 0);
}

TEST_CASE("spectral_norm: nothing, zeros, errors, tapes") {
  CHECK(spectral_norm(zeros({3, 4})) == 0);
  CHECK(spectral_norm(zeros({0, 4})) == 0);
  CHECK(spectral_norm(zeros({3, 0})) == 0);
  CHECK_THROWS_WITH_AS(spectral_norm(ones({3})),
                       "spectral_norm: a weight is (out, in, ...), got (3)", Error);
  CHECK_THROWS_AS(spectral_norm(zeros({2, 2}, i64)), Error);
  for (const float bad : {NAN, INFINITY, -INFINITY})
    CHECK_THROWS_AS(spectral_norm(from_values<float>({1, 2}, {1, bad})), Error);
  CHECK_THROWS_WITH_AS(spectral_norm(from_values<float>({2, 1}, {1, INFINITY})),
                       "spectral_norm: element 1 of a weight (2, 1) is inf", Error);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(largest_singular_value(1, 1, &nan), Error);
  CHECK_THROWS_AS(largest_singular_value(-1, 1, &nan), Error);
  Tape tape;
  const Tensor w = tape.watch(full({2, 2}, 1));
  CHECK(spectral_norm(matmul(w, w)) == doctest::Approx(4));
}

TEST_CASE("spectral_norm: the number of threads changes no bit") {
  Generator rng{2};
  const Tensor w = randn({300, 700}, f64, rng);
  CHECK(same_on_any_threads([&] { return std::vector<double>{spectral_norm(w)}; }));
}

TEST_CASE("spectral_norm and init::spectral: what the LipsFormer authors' code gives") {
  const auto golden = load_npz(test::golden("lipsformer/spectral_init.npz"));
  for (const std::string layer : {"lin", "conv", "dw", "pw"}) {
    CAPTURE(layer);
    const Tensor& drawn = golden.at("in." + layer + ".weight_base");
    const Tensor& expected = golden.at("out." + layer + ".weight");
    const double sigma = golden.at("out." + layer + ".sigma1").item();
    CHECK(std::abs(spectral_norm(drawn) - sigma) <= 1e-14 * sigma);
    Generator rng{1};
    Tensor w = empty(drawn.shape(), f64);
    init::spectral([&](Tensor& x, Generator&) { copy_into(x, drawn); })(w, rng);
    for (std::int64_t i = 0; i < w.numel(); ++i)
      CHECK(std::abs(w.data<double>()[i] - expected.data<double>()[i]) <= 1e-14);
  }
}

TEST_CASE("init::spectral: norm 1, the direction of the draw") {
  for (const Shape& shape : {Shape{64, 100}, Shape{8, 3, 4, 4}}) {
    Generator one{3}, two{3};
    Tensor w = empty(shape, f64), drawn = empty(shape, f64), small = empty(shape);
    init::spectral()(w, one);
    init::xavier_normal()(drawn, two);
    CHECK(one.next_draw() == 1);
    CHECK(spectral_norm(w) == doctest::Approx(1).epsilon(1e-14));
    CHECK(w.data<double>()[5] * spectral_norm(drawn) == doctest::Approx(drawn.data<double>()[5]));
    init::spectral(init::uniform(-3, 5))(small, one);
    CHECK(spectral_norm(small) == doctest::Approx(1).epsilon(1e-6));
  }
  Generator rng{1};
  Tensor zero = empty({3, 4}), vector = empty({3});
  init::spectral(init::zeros())(zero, rng);
  CHECK(bitwise_equal(zero, zeros({3, 4})));
  CHECK_THROWS_AS(init::spectral(init::normal())(vector, rng), Error);
  CHECK_THROWS_AS(init::spectral(init::constant(INFINITY))(zero, rng), Error);
  CHECK_THROWS_AS(init::spectral(nullptr), Error);
}

TEST_CASE("depthwise_spectral_norm: known kernels, and what images of any size come near to") {
  // A sum and a difference along a row: 2 at frequency 0 and pi; a mean of positive weights: their
  // sum.
  CHECK(depthwise_spectral_norm(from_values<double>({1, 1, 1, 2}, {1, 1})) ==
        doctest::Approx(2).epsilon(1e-14));
  CHECK(depthwise_spectral_norm(from_values<double>({1, 1, 2, 1}, {1, -1})) ==
        doctest::Approx(2).epsilon(1e-14));
  CHECK(depthwise_spectral_norm(from_values<float>({2, 1, 1, 3}, {0.5, 1, 2, 0, -4, 0})) ==
        doctest::Approx(4).epsilon(1e-14));
  // |1 + 2 e^it - e^2it|^2 = 4 + 4 sin(t)^2.
  CHECK(depthwise_spectral_norm(from_values<double>({1, 1, 1, 3}, {1, 2, -1})) ==
        doctest::Approx(std::sqrt(8.0)).epsilon(1e-13));
  // |-1 + 3 e^it + e^2it - 0.5 e^3it|: by a fine scan of its one variable.
  const Tensor odd = from_values<double>({1, 1, 1, 4}, {-1, 3, 1, -0.5});
  double scanned = 0;
  for (int k = 0; k <= 1000000; ++k) {
    const double t = k * 3.14159265358979 / 1000000;
    scanned =
        std::max(scanned, std::hypot(-1 + 3 * std::cos(t) + std::cos(2 * t) - 0.5 * std::cos(3 * t),
                                     3 * std::sin(t) + std::sin(2 * t) - 0.5 * std::sin(3 * t)));
  }
  CHECK(depthwise_spectral_norm(odd) == doctest::Approx(scanned).epsilon(1e-11));
  CHECK(depthwise_spectral_norm(zeros({3, 1, 3, 3}, f64)) == 0);
  CHECK(depthwise_spectral_norm(zeros({0, 1, 3, 3}, f64)) == 0);

  Generator rng{6};
  const Tensor w = randn({2, 1, 3, 3}, f64, rng);
  const double bound = depthwise_spectral_norm(w);
  double before = 0;
  for (const std::int64_t size : {3, 6, 12}) {
    const Tensor jacobian = test::jacobian(zeros({1, size, size, 2}, f64), [&](const Tensor& x) {
      return conv2d(x, w, {}, {.padding = 1, .groups = 2});
    });
    const double norm = spectral_norm(jacobian);
    CHECK(norm <= bound * (1 + 1e-12));
    CHECK(norm > before);
    before = norm;
  }
  CHECK(before > 0.9 * bound);
  CHECK_THROWS_WITH_AS(depthwise_spectral_norm(ones({3, 2, 3, 3})),
                       "depthwise_spectral_norm: expects (C, 1, kh, kw), got (3, 2, 3, 3)", Error);
}

TEST_CASE("init::spectral_depthwise: the convolution's own norm is 1") {
  Generator rng{3}, same{3};
  Tensor w = empty({96, 1, 7, 7}, f64), as_matrix = empty({96, 1, 7, 7}, f64);
  init::spectral_depthwise()(w, rng);
  CHECK(depthwise_spectral_norm(w) == doctest::Approx(1).epsilon(1e-12));
  init::spectral()(as_matrix, same);
  const double published = depthwise_spectral_norm(as_matrix);
  CHECK(published > 1.2);
  CHECK(published < 1.8);
  CHECK(w.data<double>()[77] * published == doctest::Approx(as_matrix.data<double>()[77]));
}

}  // namespace
}  // namespace lipgrad
