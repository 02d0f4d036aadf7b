#include <lipgrad/ops/elementwise.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

using Doubles = std::vector<double>;

Tensor row(const Doubles& values) {
  return from_vector<double>({std::int64_t(values.size())}, values);
}

TEST_CASE("arithmetic of tensors and numbers") {
  const Tensor a = row({1, 4, -2}), b = row({2, 0.5, 4});
  CHECK((a + b).to_vector<double>() == Doubles{3, 4.5, 2});
  CHECK((a - b).to_vector<double>() == Doubles{-1, 3.5, -6});
  CHECK((a * b).to_vector<double>() == Doubles{2, 2, -8});
  CHECK((a / b).to_vector<double>() == Doubles{0.5, 8, -0.5});
  CHECK((a + 1).to_vector<double>() == Doubles{2, 5, -1});
  CHECK((1 + a).to_vector<double>() == Doubles{2, 5, -1});
  CHECK((a - 1).to_vector<double>() == Doubles{0, 3, -3});
  CHECK((1 - a).to_vector<double>() == Doubles{0, -3, 3});
  CHECK((a * 2).to_vector<double>() == Doubles{2, 8, -4});
  CHECK((2 * a).to_vector<double>() == Doubles{2, 8, -4});
  CHECK((a / 2).to_vector<double>() == Doubles{0.5, 2, -1});
  CHECK((2 / b).to_vector<double>() == Doubles{1, 4, 0.5});
  CHECK((-a).to_vector<double>() == Doubles{-1, -4, 2});
  CHECK(pow(b, 2).to_vector<double>() == Doubles{4, 0.25, 16});
  CHECK(pow(b, row({3, 2, 0.5})).to_vector<double>() == Doubles{8, 0.25, 2});
  CHECK(minimum(a, b).to_vector<double>() == Doubles{1, 0.5, -2});
  CHECK(maximum(a, b).to_vector<double>() == Doubles{2, 4, 4});
  CHECK(clamp(a, -1, 2).to_vector<double>() == Doubles{1, 2, -1});
  CHECK(abs(a).to_vector<double>() == Doubles{1, 4, 2});
  CHECK(square(a).to_vector<double>() == Doubles{1, 16, 4});
  CHECK(reciprocal(b).to_vector<double>() == Doubles{0.5, 2, 0.25});
  CHECK(sqrt(b).data<double>()[2] == 2);
  CHECK(log(exp(a)).data<double>()[1] == doctest::Approx(4));
  const Tensor condition = from_values<std::uint8_t>({3}, {1, 0, 2});
  CHECK(where(condition, a, b).to_vector<double>() == Doubles{1, 0.5, -2});
}

TEST_CASE("arithmetic broadcasts and sums gradients back") {
  const Tensor a = from_values<double>({2, 1, 2}, {1, 2, 3, 4}),
               b = from_values<double>({3, 1}, {10, 20, 30});
  CHECK((a * b).shape() == Shape{2, 3, 2});
  CHECK((a * b).to_vector<double>() == Doubles{10, 20, 20, 40, 30, 60, 30, 40, 60, 80, 90, 120});
  CHECK((a + full({}, 1, f64)).shape() == a.shape());
  CHECK((zeros({0, 3}, f64) + ones({3}, f64)).shape() == Shape{0, 3});
  Tape tape;
  const Tensor x = tape.watch(a), y = tape.watch(b);
  const std::vector<Tensor> g = tape.grad(x * y, {x, y}, ones({2, 3, 2}, f64));
  CHECK(g[0].to_vector<double>() == Doubles{60, 60, 60, 60});
  CHECK(g[1].shape() == b.shape());
  CHECK(g[1].to_vector<double>() == Doubles{10, 10, 10});
  const std::vector<Tensor> h = tape.grad(x + y, {x, y}, ones({2, 3, 2}, f64));
  CHECK(h[0].to_vector<double>() == Doubles{3, 3, 3, 3});
  CHECK(h[1].to_vector<double>() == Doubles{4, 4, 4});
}

TEST_CASE("where and minimum hand gradients to the side chosen") {
  const Tensor condition = from_values<std::uint8_t>({2, 1}, {1, 0});
  Tape tape;
  const Tensor a = tape.watch(from_values<double>({2}, {1, 2})), b = tape.watch(full({}, 2, f64));
  const std::vector<Tensor> g = tape.grad(where(condition, a, b), {a, b}, ones({2, 2}, f64));
  CHECK(g[0].to_vector<double>() == Doubles{1, 1});
  CHECK(g[1].item() == 2);
  const std::vector<Tensor> h = tape.grad(minimum(a, b), {a, b}, ones({2}, f64));
  CHECK(h[0].to_vector<double>() == Doubles{1, 0.5});
  CHECK(h[1].item() == 0.5);
}

TEST_CASE("arithmetic takes parameters and names what does not fit") {
  struct Scale : Module {
    Parameter weight{*this, "weight", {2}, [](Tensor& value, Generator&) {
                       value.mutable_data<float>()[0] = 2;
                       value.mutable_data<float>()[1] = 3;
                     }};
  } scale;
  Generator rng;
  scale.initialize(rng);
  CHECK((scale.weight * 2 + scale.weight).data<float>()[1] == 9);
  const Tensor a = ones({2, 3}), b = ones({4});
  CHECK_THROWS_WITH_AS(a + b, "add: shapes (2, 3) and (4) do not broadcast", Error);
  CHECK_THROWS_WITH_AS(a * ones({3}, f64),
                       "mul: inputs of dtype f32 and f64; convert one with cast()", Error);
  CHECK_THROWS_WITH_AS(exp(arange(3)), "exp: expects f32 or f64, got i64", Error);
  CHECK_THROWS_WITH_AS(Tensor() - a, "sub: an input is undefined", Error);
  CHECK_THROWS_WITH_AS(clamp(a, 1, 0), "clamp: low 1 and high 0 are no range", Error);
  CHECK_THROWS_AS(where(a, a, a), Error);
}

}  // namespace
}  // namespace lipgrad
