#include <lipgrad/ops/reduce.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

using Doubles = std::vector<double>;

// 0, 1, ... in the given shape.
Tensor counted(const Shape& shape) { return arange(shape.numel(), f64).alias(shape); }

TEST_CASE("sums over any dimensions") {
  const Tensor x = counted({2, 3, 2});
  CHECK(sum(x).item() == 66);
  CHECK(sum(x).shape() == Shape{});
  CHECK(sum(x, {0}).to_vector<double>() == Doubles{6, 8, 10, 12, 14, 16});
  CHECK(sum(x, {1}).to_vector<double>() == Doubles{6, 9, 24, 27});
  CHECK(sum(x, {-1}).to_vector<double>() == Doubles{1, 5, 9, 13, 17, 21});
  CHECK(sum(x, {0, 1}).to_vector<double>() == Doubles{30, 36});
  CHECK(sum(x, {2, 0}).to_vector<double>() == Doubles{14, 22, 30});  // two runs
  CHECK(sum(x, {2, 0}, true).shape() == Shape{1, 3, 1});
  CHECK(sum(x, {0}, true).shape() == Shape{1, 3, 2});
  CHECK(sum(x, {}).to_vector<double>() == x.to_vector<double>());
  CHECK(sum(counted({1, 3, 1}), {0, 2}).to_vector<double>() == Doubles{0, 1, 2});
  CHECK(sum(counted({}), {}).item() == 0);
  CHECK(sum(zeros({3, 0}), {1}).to_vector<float>() == std::vector<float>(3));
  CHECK(sum(zeros({0, 3}), {1}).shape() == Shape{0});
  CHECK(sum(zeros({0})).item() == 0);
}

TEST_CASE("mean, var, max, logsumexp") {
  const Tensor x = counted({2, 3, 2});
  CHECK(mean(x).item() == 5.5);
  CHECK(mean(x, {0, 2}).to_vector<double>() == Doubles{3.5, 5.5, 7.5});
  CHECK(var(x, {2}).to_vector<double>() == Doubles(6, 0.5));
  CHECK(var(x, {2}, false, 0).to_vector<double>() == Doubles(6, 0.25));
  CHECK(var(x).item() == doctest::Approx(13));
  CHECK(var(x, {0, 2}, true, 0).shape() == Shape{1, 3, 1});
  for (double v : var(x, {0, 2}, false, 0).to_vector<double>()) CHECK(v == doctest::Approx(9.25));
  CHECK(max(x, {0, 2}).to_vector<double>() == Doubles{7, 9, 11});
  CHECK(max(x).item() == 11);
  CHECK(logsumexp(x, {1, 2}).data<double>()[0] == doctest::Approx(5.4561933160));
  CHECK(logsumexp(full({2, 2}, 1000, f64)).item() == doctest::Approx(1000 + std::log(4.0)));
  CHECK(logsumexp(zeros({2, 0}), {1}).data<float>()[0] == -std::numeric_limits<float>::infinity());
  CHECK(argmax(from_values<float>({2, 3}, {1, 5, 5, 7, 2, 7})).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 0});
  CHECK(argmax(from_values<float>({2, 3}, {1, 5, 5, 7, 2, 7}), 0).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 0, 1});
}

TEST_CASE("gradients of reductions") {
  Tape tape;
  const Tensor x = tape.watch(from_values<double>({2, 2}, {3, 1, 3, 3}));
  CHECK(tape.grad(max(x), {x})[0].to_vector<double>() ==
        Doubles{1, 0, 0, 0});  // the first of three
  CHECK(tape.grad(sum(x), {x})[0].to_vector<double>() == Doubles{1, 1, 1, 1});
  CHECK(tape.grad(mean(x, {0, 1}), {x})[0].to_vector<double>() == Doubles{0.25, 0.25, 0.25, 0.25});
  const Tensor low = tape.watch(full({3}, -std::numeric_limits<double>::infinity(), f64));
  CHECK(tape.grad(logsumexp(low), {low})[0].to_vector<double>() == Doubles{0, 0, 0});
}

TEST_CASE("reductions name what does not fit") {
  const Tensor x = ones({2, 0, 3});
  CHECK_THROWS_WITH_AS(sum(x, {3}), "sum: dim 3 out of range for (2, 0, 3)", Error);
  CHECK_THROWS_WITH_AS(sum(x, {0, -3}), "sum: dim -3 is given twice for (2, 0, 3)", Error);
  CHECK_THROWS_WITH_AS(mean(x, {1}), "mean: nothing to average in (2, 0, 3)", Error);
  CHECK_THROWS_WITH_AS(max(x), "max: nothing to choose from in (2, 0, 3)", Error);
  CHECK_THROWS_WITH_AS(argmax(x, 1), "argmax: nothing to choose from in (2, 0, 3)", Error);
  CHECK_THROWS_WITH_AS(var(ones({4, 1}), {1}),
                       "var: 1 elements each in (4, 1) are too few for correction 1", Error);
  CHECK_THROWS_WITH_AS(sum(arange(3)), "sum: expects f32 or f64, got i64", Error);
  CHECK_THROWS_WITH_AS(logsumexp(Tensor()), "logsumexp: an input is undefined", Error);
  CHECK(mean(x, {2}).shape() == Shape{2, 0});
}

}  // namespace
}  // namespace lipgrad
