#include <lipgrad/ops/activation.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/tape.h>

#include "support/data.h"

namespace lipgrad {
namespace {

TEST_CASE("activations at single points") {
  const auto at = [](Tensor (*f)(const Tensor&), double x) { return f(full({}, x, f64)).item(); };
  CHECK(at(relu, -2) == 0);
  CHECK(at(relu, 3) == 3);
  CHECK(leaky_relu(full({}, -2, f64), 0.2).item() == -0.4);
  CHECK(elu(full({}, -1, f64), 2).item() == doctest::Approx(2 * (std::exp(-1.0) - 1)));
  CHECK(at(silu, 1) == doctest::Approx(1 / (1 + std::exp(-1.0))));
  CHECK(at(sigmoid, 0) == 0.5);
  CHECK(at(tanh, 0.5) == doctest::Approx(std::tanh(0.5)));
  CHECK(softplus(full({}, 0.5, f64), 2).item() == doctest::Approx(std::log(1 + std::exp(1.0)) / 2));
  CHECK(relu(zeros({0, 3})).shape() == Shape{0, 3});
}

TEST_CASE("activation gradients at the kink") {
  for (auto [f, slope] : {std::pair<Tensor (*)(const Tensor&), double>{relu, 0.0},
                          {[](const Tensor& x) { return leaky_relu(x, 0.2); }, 0.2},
                          {[](const Tensor& x) { return leaky_relu(x, -0.2); }, -0.2},
                          {[](const Tensor& x) { return elu(x, 0.5); }, 0.5}}) {
    Tape tape;
    const Tensor x = tape.watch(zeros({1}, f64));
    CHECK(tape.grad(f(x), {x})[0].item() == slope);
  }
}

TEST_CASE("gelu against PyTorch's values and derivatives") {
  const auto golden = load_npz(test::golden("gelu/torch.npz"));
  const Tensor& x = golden.at("x");
  for (const std::string form : {"none", "tanh"}) {
    const double* y = golden.at("y_" + form).data<double>();
    const double* slope = golden.at("slope_" + form).data<double>();
    for (DType dtype : {f64, f32}) {
      Tape tape;
      const Tensor at = tape.watch(x.to(dtype)), value = form == "none" ? gelu(at) : gelu_tanh(at);
      const Tensor g = tape.grad(value, {at}, ones(x.shape(), dtype))[0].to(f64);
      const Tensor got = value.detach().to(f64);
      const double tolerance = dtype == f64 ? 2e-15 : 1e-6;
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        CHECK(std::abs(got.data<double>()[i] - y[i]) <= tolerance * std::max(1.0, std::abs(y[i])));
        CHECK(std::abs(g.data<double>()[i] - slope[i]) <= tolerance);
      }
    }
  }
}

TEST_CASE("activations refuse what does not fit") {
  CHECK_THROWS_WITH_AS(elu(ones({2}), -1), "elu: alpha must be >= 0, got -1", Error);
  CHECK_THROWS_WITH_AS(softplus(ones({2}), 0), "softplus: beta must be positive, got 0", Error);
  CHECK_THROWS_WITH_AS(gelu(arange(3, i32)), "gelu: expects f32 or f64, got i32", Error);
  CHECK_THROWS_WITH_AS(silu(Tensor()), "silu: an input is undefined", Error);
}

}  // namespace
}  // namespace lipgrad
