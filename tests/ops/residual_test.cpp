#include <lipgrad/ops/residual.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/kernels/residual.h>
#include <lipgrad/ops/layers.h>
#include <lipgrad/ops/linear.h>

#include <support/data.h>
#include <support/tensors.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

TEST_CASE("residuals at a small example") {
  const Tensor x = from_values<double>({2, 2}, {1, 2, 3, 4}),
               f = from_values<double>({2, 2}, {5, 0, -1, 2}),
               alpha = from_values<double>({2}, {0.5, -2}), half = full({}, 0.5, f64);
  using Values = std::vector<double>;
  CHECK(weighted_residual(x, f, alpha).to_vector<double>() == Values{3.5, 2, 2.5, 0});
  CHECK(weighted_residual(x, f, half).to_vector<double>() == Values{3.5, 2, 2.5, 5});
  CHECK(damped_residual(x, f, alpha).to_vector<double>() == Values{3, 6, 1, 8});
  CHECK(damped_residual(x, f, half).to_vector<double>() == Values{3, 1, 1, 3});
  CHECK(weighted_residual(half, half, half).item() == 0.75);
  CHECK(damped_residual(zeros({0, 2}, f64), zeros({0, 2}, f64), alpha).shape() == Shape{0, 2});
}

TEST_CASE("residuals keep f for alpha's gradient alone, and x for the damped form's") {
  Generator rng{1};
  const Tensor a = randn({100, 8}, f32, rng), b = randn({100, 8}, f32, rng), s = ones({8});
  for (const bool of_alpha : {false, true}) {
    Tape tape;
    const Tensor x = tape.watch(a), f = tape.watch(b), alpha = of_alpha ? tape.watch(s) : s;
    weighted_residual(x, f, alpha);
    CHECK((tape.bytes_saved() >= a.nbytes()) == of_alpha);
    damped_residual(x, f, alpha);
    CHECK((tape.bytes_saved() >= 2 * a.nbytes()) == of_alpha);
  }
}

TEST_CASE("residuals name what does not fit") {
  CHECK_THROWS_WITH_AS(weighted_residual(ones({2, 3}), ones({3}), ones({3})),
                       "weighted_residual: x (2, 3) and f (3) differ", Error);
  CHECK_THROWS_WITH_AS(damped_residual(ones({2, 3}), ones({2, 3}), ones({2})),
                       "damped_residual: alpha (2) is neither a scalar nor one value for each "
                       "element of the last dimension of (2, 3)",
                       Error);
  CHECK_THROWS_AS(weighted_residual(ones({2}), ones({2}), ones({2}, f64)), Error);
  CHECK_THROWS_AS(weighted_residual(ones({}), ones({}), ones({1})), Error);
}

template <class T>
void check_kernel(bool damped, bool scalar, std::int64_t rows, std::int64_t cols) {
  CAPTURE(damped);
  CAPTURE(scalar);
  CAPTURE(rows);
  CAPTURE(cols);
  const std::int64_t n = rows * cols;
  const std::vector<T> x = random_values<T>(n, 1), f = random_values<T>(n, 2),
                       gy = random_values<T>(n, 3),
                       alpha = random_values<T>(scalar ? 1 : cols, 4, -1, 1);
  std::vector<T> y(n), gx(n), gf(n), galpha(alpha.size());
  cpu::residual(damped, rows, cols, scalar, x.data(), f.data(), alpha.data(), y.data());
  cpu::residual_backward(damped, rows, cols, scalar, x.data(), f.data(), alpha.data(), gy.data(),
                         gx.data(), gf.data(), galpha.data());
  double worst = 0;
  std::vector<double> sum(alpha.size());
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t c = scalar ? 0 : i % cols;
    const double a = alpha[c], d = damped ? double(f[i]) - x[i] : double(f[i]);
    worst = std::max(worst, std::abs(y[i] - (x[i] + a * d)));
    worst = std::max(worst, std::abs(gx[i] - (damped ? 1 - a : 1) * gy[i]));
    worst = std::max(worst, std::abs(gf[i] - a * gy[i]));
    sum[c] += gy[i] * d;
  }
  const double terms = double(scalar ? n : rows);
  for (std::size_t c = 0; c < sum.size(); ++c)
    worst = std::max(worst, std::abs(galpha[c] - sum[c]) / (std::sqrt(terms) + 1));
  CHECK(worst <= (sizeof(T) == 4 ? 1e-5 : 1e-13));
}

TEST_CASE("residual kernels") {
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {1, 1}, {4, 8}, {7, 13}, {3000, 33}, {5, 1000}})
    for (const bool damped : {false, true})
      for (const bool scalar : {false, true}) {
        check_kernel<float>(damped, scalar, rows, cols);
        check_kernel<double>(damped, scalar, rows, cols);
      }
  CHECK(same_on_any_threads([] {
    const std::int64_t rows = 5000, cols = 40;
    const std::vector<float> x = random_values<float>(rows * cols, 1),
                             f = random_values<float>(rows * cols, 2),
                             alpha = random_values<float>(cols, 3);
    std::vector<float> gx(rows * cols), gf(rows * cols), galpha(cols + 1);
    for (const bool scalar : {true, false})
      cpu::residual_backward<float>(true, rows, cols, scalar, x.data(), f.data(), alpha.data(),
                                    x.data(), gx.data(), gf.data(),
                                    galpha.data() + (scalar ? cols : 0));
    galpha.insert(galpha.end(), gx.begin(), gx.end());
    galpha.insert(galpha.end(), gf.begin(), gf.end());
    return galpha;
  }));
}

TEST_CASE("WeightedResidual") {
  Module root;
  WeightedResidual a(root, "a", 2, {.initial = 0.25}),
      b(root, "b", 2, {.initial = 0.25, .damped = true});
  Generator rng{1};
  root.initialize(rng);
  CHECK(a.alpha.value().to_vector<float>() == std::vector<float>{0.25, 0.25});
  const Tensor x = full({3, 2}, 4), f = full({3, 2}, 8);
  CHECK(a.forward(x, f).data<float>()[5] == 6);
  CHECK(b.forward(x, f).data<float>()[5] == 5);
  CHECK_THROWS_WITH_AS(WeightedResidual(root, "c", 0),
                       "WeightedResidual: features must be at least 1, got 0", Error);
  CHECK_THROWS_AS(WeightedResidual(root, "d", 1, {.initial = NAN}), Error);
}

TEST_CASE("weighted_residual: what LipsFormer's code gives") {
  const auto golden = load_npz(test::golden("lipsformer/wrs.npz"));
  Tape tape;
  const Tensor x = tape.watch(golden.at("in.x")), w = tape.watch(golden.at("w.f.weight")),
               b = tape.watch(golden.at("w.f.bias")),
               alpha = tape.watch(golden.at("w.alpha.scale"));
  const Tensor y = weighted_residual(x, linear(x, w, b), alpha);
  CHECK(test::distance(y, golden.at("out.y")) <= 1e-12);
  const auto g = tape.grad(y, {x, w, b, alpha}, golden.at("rand.r"));
  CHECK(test::distance(g[0], golden.at("gin.x")) <= 1e-10);
  CHECK(test::distance(g[1], golden.at("gw.f.weight")) <= 1e-10);
  CHECK(test::distance(g[2], golden.at("gw.f.bias")) <= 1e-10);
  CHECK(test::distance(g[3], golden.at("gw.alpha.scale")) <= 1e-10);
}

TEST_CASE("WeightedResidual as ReZero and as DeepNorm") {
  Module root;
  WeightedResidual rezero(root, "rezero", 2, {.initial = 0, .scalar = true});
  WeightedResidual deep(root, "deep", 2,
                        {.initial = deep_norm_gain(8), .scalar = true, .trainable = false});
  Generator rng{1};
  root.initialize(rng);
  CHECK(rezero.alpha.shape() == Shape{});
  CHECK(root.num_parameters() == 1);
  const Tensor x = full({3, 2}, 4), f = full({3, 2}, 8);
  CHECK(bitwise_equal(rezero.forward(x, f), x));
  CHECK(deep_norm_gain(8) == doctest::Approx(2));
  CHECK(deep_norm_init_gain(2) == doctest::Approx(0.5));
  CHECK(bitwise_equal(deep.forward(f, x), full({3, 2}, 16)));  // f + 2 x
  Tape tape;
  const Tensor y = rezero.forward(x, tape.watch(f));
  CHECK(tape.grad(y, {rezero.alpha}, ones({3, 2}))[0].item() == 48);
  CHECK_THROWS_AS(deep_norm_gain(0), Error);
  CHECK_THROWS_AS(WeightedResidual(root, "c", 0, {.scalar = true}), Error);
}

}  // namespace
}  // namespace lipgrad
