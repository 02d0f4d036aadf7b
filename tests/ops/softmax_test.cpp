#include <lipgrad/ops/softmax.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

using Doubles = std::vector<double>;
constexpr double inf = std::numeric_limits<double>::infinity();

TEST_CASE("softmax along any dimension") {
  Generator rng{1};
  const Tensor x = randn({3, 4, 5}, f64, rng);
  for (int dim : {0, 1, 2}) {
    const Tensor y = softmax(x, dim), z = log_softmax(x, dim);
    // The same as along the last dimension of the transposed tensor.
    const Tensor t = transpose(softmax(transpose(x, dim, 2)), dim, 2);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      CHECK(y.data<double>()[i] == doctest::Approx(t.data<double>()[i]));
      CHECK(z.data<double>()[i] == doctest::Approx(std::log(t.data<double>()[i])));
    }
  }
  CHECK(softmax(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(softmax(zeros({3, 0})).shape() == Shape{3, 0});
}

TEST_CASE("masked softmax: broadcast masks, rows with nothing left") {
  const Tensor x = from_values<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor mask = from_values<std::uint8_t>({1, 3}, {1, 0, 1});
  const Tensor y = softmax(x, mask);
  CHECK(y.data<double>()[1] == 0);
  CHECK(y.data<double>()[0] == doctest::Approx(1 / (1 + std::exp(2.0))));
  CHECK(log_softmax(x, mask).data<double>()[4] == -inf);
  const Tensor rows = from_values<std::uint8_t>({2, 1}, {0, 1});
  Tape tape;
  const Tensor w = tape.watch(x);
  for (const Tensor& z : {softmax(w, rows), log_softmax(w, rows)}) {
    const Tensor g = tape.grad(z, {w}, from_values<double>({2, 3}, {1, 2, 3, 1, 2, 3}))[0];
    for (int i = 0; i < 3; ++i) {
      CHECK(z.data<double>()[i] == 0);
      CHECK(g.data<double>()[i] == 0);
      CHECK(g.data<double>()[3 + i] != 0);
    }
  }
  const Tensor partly = log_softmax(w, mask);
  const Tensor g = tape.grad(partly, {w}, ones({2, 3}, f64))[0];
  CHECK(g.data<double>()[1] == 0);
  CHECK(g.data<double>()[0] == doctest::Approx(1 - 2 / (1 + std::exp(2.0))));
}

TEST_CASE("softmax names what does not fit") {
  const Tensor x = ones({2, 3});
  CHECK_THROWS_WITH_AS(softmax(x, 2), "softmax: dim 2 out of range for (2, 3)", Error);
  CHECK_THROWS_WITH_AS(softmax(x, ones({3}, u8).alias({3}), -3),
                       "softmax: dim -3 out of range for (2, 3)", Error);
  CHECK_THROWS_WITH_AS(log_softmax(x, ones({2}, u8)),
                       "log_softmax: the mask (2) does not broadcast to the input (2, 3)", Error);
  CHECK_THROWS_AS(softmax(x, x), Error);
  CHECK_THROWS_WITH_AS(softmax(arange(3)), "softmax: expects f32 or f64, got i64", Error);
}

}  // namespace
}  // namespace lipgrad
