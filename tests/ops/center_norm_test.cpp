#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/spectral_norm.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/kernels/norm.h>
#include <lipgrad/ops/layers.h>

#include <support/data.h>
#include <support/tensors.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

using test::distance;

TEST_CASE("center_norm: what the LipsFormer authors' code gives") {
  const auto golden = load_npz(test::golden("lipsformer/centernorm_d8.npz"));
  Tape tape;
  const Tensor x = tape.watch(golden.at("in.x")), weight = tape.watch(golden.at("w.weight")),
               bias = tape.watch(golden.at("w.bias"));
  const Tensor y = center_norm(x, weight, bias);
  CHECK(distance(y, golden.at("out.y")) <= 1e-12);
  const auto g = tape.grad(y, {x, weight, bias}, golden.at("rand.r"));
  CHECK(distance(g[0], golden.at("gin.x")) <= 1e-10);
  CHECK(distance(g[1], golden.at("gw.weight")) <= 1e-10);
  CHECK(distance(g[2], golden.at("gw.bias")) <= 1e-10);
}

TEST_CASE("center_norm: its Jacobian has the norm that is declared at most, and reaches it") {
  Generator rng{3};
  for (const std::int64_t cols : {2, 5, 9}) {
    const Tensor x = randn({3, cols}, f64, rng);
    const double factor = double(cols) / double(cols - 1);
    const auto norm_of = [&](const Tensor& weight) {
      return spectral_norm(
          test::jacobian(x, [&](const Tensor& at) { return center_norm(at, weight); }));
    };
    CHECK(norm_of({}) == doctest::Approx(factor).epsilon(1e-12));
    for (int trial = 0; trial < 5; ++trial) {
      const Tensor weight = randn({cols}, f64, rng);
      double largest = 0;
      for (std::int64_t c = 0; c < cols; ++c)
        largest = std::max(largest, std::abs(weight.data<double>()[c]));
      CHECK(norm_of(weight) <= factor * largest * (1 + 1e-12));
    }
  }
}

TEST_CASE("center_norm: without weight and bias, empty, errors") {
  const Tensor y = center_norm(from_values<double>({2, 3}, {1, 2, 6, 4, 4, 4}));
  const double expected[] = {-3, -1.5, 4.5, 0, 0, 0};
  for (int i = 0; i < 6; ++i) CHECK(y.data<double>()[i] == doctest::Approx(expected[i]));
  CHECK(center_norm(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK_THROWS_WITH_AS(center_norm(ones({4, 1})),
                       "center_norm: rows of one element have no deviation, got (4, 1)", Error);
  CHECK_THROWS_WITH_AS(center_norm(ones({2, 3}), ones({2})),
                       "center_norm: weight or bias (2) does not fit the rows of (2, 3)", Error);
  CHECK_THROWS_AS(center_norm(ones({})), Error);
}

TEST_CASE("center_norm keeps its input for the weight's gradient alone") {
  Generator rng{1};
  const Tensor x = randn({100, 8}, f32, rng), weight = ones({8});
  for (const bool of_weight : {false, true}) {
    Tape tape;
    const Tensor leaf = tape.watch(x), w = of_weight ? tape.watch(weight) : weight;
    const Tensor y = center_norm(leaf, w);
    CHECK((tape.bytes_saved() >= x.nbytes()) == of_weight);
  }
}

template <class T>
void check_kernel(std::int64_t rows, std::int64_t cols, bool affine) {
  CAPTURE(rows);
  CAPTURE(cols);
  const std::vector<T> x = random_values<T>(rows * cols, 1, -1, 3),
                       gy = random_values<T>(rows * cols, 2), w = random_values<T>(cols, 3),
                       b = random_values<T>(cols, 4);
  const T* weight = affine ? w.data() : nullptr;
  std::vector<T> y(rows * cols), mean(rows), gx(rows * cols), gw(cols), gb(cols);
  cpu::center_norm(rows, cols, x.data(), weight, affine ? b.data() : nullptr, y.data(),
                   mean.data());
  cpu::center_norm_backward(rows, cols, x.data(), weight, mean.data(), gy.data(), gx.data(),
                            gw.data(), gb.data());
  const double factor = double(cols) / double(cols - 1);
  double worst = 0;
  std::vector<double> sum_w(cols), sum_b(cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    double m = 0, h = 0;
    const auto scale = [&](std::int64_t c) { return affine ? double(w[c]) : 1.0; };
    for (std::int64_t c = 0; c < cols; ++c) {
      m += x[r * cols + c] / double(cols);
      h += gy[r * cols + c] * scale(c) / double(cols);
    }
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t i = r * cols + c;
      const double z = factor * (x[i] - m);
      worst = std::max(worst, std::abs(y[i] - (z * scale(c) + (affine ? double(b[c]) : 0))));
      worst = std::max(worst, std::abs(gx[i] - factor * (gy[i] * scale(c) - h)));
      sum_w[c] += gy[i] * z;
      sum_b[c] += gy[i];
    }
  }
  for (std::int64_t c = 0; c < cols; ++c) {
    const double size = std::sqrt(double(rows)) + 1;
    worst = std::max(worst, std::abs(gw[c] - sum_w[c]) / size);
    worst = std::max(worst, std::abs(gb[c] - sum_b[c]) / size);
  }
  CHECK(worst <= (sizeof(T) == 4 ? 4e-6 : 1e-13));
}

TEST_CASE("center_norm kernels") {
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {1, 2}, {4, 8}, {7, 13}, {3000, 33}, {5, 1000}}) {
    for (const bool affine : {true, false}) {
      check_kernel<float>(rows, cols, affine);
      check_kernel<double>(rows, cols, affine);
    }
  }
  CHECK(same_on_any_threads([] {
    const std::int64_t rows = 5000, cols = 40;
    const std::vector<float> x = random_values<float>(rows * cols, 1),
                             w = random_values<float>(cols, 2);
    std::vector<float> y(rows * cols), mean(rows), g(2 * cols);
    cpu::center_norm<float>(rows, cols, x.data(), w.data(), nullptr, y.data(), mean.data());
    cpu::center_norm_backward<float>(rows, cols, x.data(), w.data(), mean.data(), y.data(),
                                     y.data(), g.data(), g.data() + cols);
    y.insert(y.end(), g.begin(), g.end());
    return y;
  }));
}

TEST_CASE("CenterNorm") {
  Module root;
  CenterNorm norm(root, "norm", 3), plain(root, "plain", 3, {.affine = false});
  Generator rng{1};
  root.initialize(rng);
  CHECK(norm.weight->value().to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(norm.bias->value().to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(!plain.weight);
  const Tensor x = randn({4, 3}, f32, rng);
  CHECK(bitwise_equal(norm.forward(x), plain.forward(x)));
  CHECK_THROWS_WITH_AS(norm.forward(zeros({2, 4})),
                       "CenterNorm: made for rows of 3 features, got (2, 4)", Error);
  CHECK_THROWS_WITH_AS(CenterNorm(root, "one", 1), "CenterNorm: features must be at least 2, got 1",
                       Error);
}

}  // namespace
}  // namespace lipgrad
