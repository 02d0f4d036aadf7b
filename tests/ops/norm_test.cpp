#include <lipgrad/ops/norm.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

TEST_CASE("layer_norm, rms_norm, l2_normalize at a small example") {
  const Tensor x = from_values<double>({2, 2}, {1, 3, -4, 3});
  const Tensor w = from_values<double>({2}, {2, 1}), b = from_values<double>({2}, {0, 10});
  const Tensor y = layer_norm(x, w, b, 0.5);
  const double r = 1 / std::sqrt(1.5), s = 3.5 / std::sqrt(12.25 + 0.5);
  const double expected[] = {-2 * r, 10 + r, -2 * s, 10 + s};
  for (int i = 0; i < 4; ++i) CHECK(y.data<double>()[i] == doctest::Approx(expected[i]));
  CHECK(layer_norm(x, {}, {}, 0.5).data<double>()[0] == doctest::Approx(-r));
  CHECK(rms_norm(x, w, 0.5).data<double>()[0] == doctest::Approx(2 / std::sqrt(5.5)));
  CHECK(l2_normalize(x).data<double>()[2] == doctest::Approx(-0.8));
  CHECK(l2_normalize(x, 0).data<double>()[0] == doctest::Approx(1 / std::sqrt(17.0)));
  CHECK(l2_normalize(zeros({2, 3})).data<float>()[0] == 0);
  CHECK(layer_norm(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(layer_norm(zeros({2, 3})).data<float>()[0] == 0);
  CHECK(l2_normalize(zeros({2, 0})).shape() == Shape{2, 0});
}

TEST_CASE("norms compute only the gradients wanted") {
  const Tensor x = from_values<double>({2, 2}, {1, 3, -4, 3}), w = ones({2}, f64);
  Tape tape;
  const Tensor bias = tape.watch(zeros({2}, f64));
  const Tensor g = tape.grad(layer_norm(x, w, bias), {bias}, ones({2, 2}, f64))[0];
  CHECK(g.to_vector<double>() == std::vector<double>{2, 2});
  const Tensor weight = tape.watch(w);
  CHECK(tape.grad(rms_norm(zeros({0, 2}, f64), weight), {weight}, zeros({0, 2}, f64))[0]
            .to_vector<double>() == std::vector<double>{0, 0});
}

TEST_CASE("norms name what does not fit") {
  const Tensor x = ones({2, 3});
  CHECK_THROWS_WITH_AS(layer_norm(x, ones({2})),
                       "layer_norm: weight or bias (2) does not fit the rows of (2, 3)", Error);
  CHECK_THROWS_WITH_AS(rms_norm(ones({2, 0})),
                       "rms_norm: expects at least one element in the last dimension, got (2, 0)",
                       Error);
  CHECK_THROWS_WITH_AS(l2_normalize(x, -1, 0), "l2_normalize: eps must be positive, got 0", Error);
  CHECK_THROWS_WITH_AS(l2_normalize(x, 4), "l2_normalize: dim 4 out of range for (2, 3)", Error);
  CHECK_THROWS_AS(layer_norm(x, ones({3}, f64)), Error);
}

}  // namespace
}  // namespace lipgrad
