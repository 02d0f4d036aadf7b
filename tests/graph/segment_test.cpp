// Some of this is shared among threads, so ThreadSanitizer looks at it too.
#include <lipgrad/graph/segment.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

using Op = Tensor (*)(const Tensor&, const Tensor&);

std::vector<double> values_of(Op f, const Tensor& x, const Tensor& offsets) {
  return f(x, offsets).to_vector<double>();
}
std::vector<double> gradient_of(Op f, const Tensor& x0, const Tensor& offsets, const Tensor& r) {
  Tape tape;
  const Tensor x = tape.watch(x0);
  return tape.grad(f(x, offsets), {x}, r)[0].to_vector<double>();
}

}  // namespace

TEST_CASE("segments: no rows, ties, infinities, NaN") {
  using V = std::vector<double>;
  const Tensor offsets = from_values<std::int64_t>({6}, {0, 0, 3, 5, 7, 8});
  const Tensor x = from_values<double>({8}, {1, 4, 4, -infinity, -infinity, 2, nan, infinity});
  const Tensor r = from_values<double>({5}, {10, 20, 30, 40, 50});
  V y = values_of(segment_sum, x, offsets);
  CHECK(y[0] == 0);
  CHECK(y[1] == 9);
  CHECK(y[2] == -infinity);
  CHECK(std::isnan(y[3]));
  y = values_of(segment_mean, x, offsets);
  CHECK(y[0] == 0);
  CHECK(y[1] == 3);
  CHECK(gradient_of(segment_sum, x, offsets, r) == V{20, 20, 20, 30, 30, 40, 40, 50});
  CHECK(gradient_of(segment_mean, x, offsets, r) ==
        V{20.0 / 3, 20.0 / 3, 20.0 / 3, 15, 15, 20, 20, 50});
  y = values_of(segment_max, x, offsets);
  CHECK(y[0] == 0);
  CHECK(y[1] == 4);
  CHECK(y[2] == -infinity);
  CHECK(std::isnan(y[3]));
  CHECK(y[4] == infinity);
  CHECK(gradient_of(segment_max, x, offsets, r) == V{0, 20, 0, 30, 0, 0, 40, 50});
  y = values_of(segment_logsumexp, x, offsets);
  CHECK(y[0] == 0);
  CHECK(y[1] == doctest::Approx(std::log(std::exp(1) + 2 * std::exp(4))));
  CHECK(y[2] == -infinity);
  CHECK(std::isnan(y[3]));
  CHECK(y[4] == infinity);
  const V g = gradient_of(segment_logsumexp, x, offsets, r);
  CHECK(g[0] + g[1] + g[2] == doctest::Approx(20));
  CHECK(g[1] == doctest::Approx(20 * std::exp(4 - y[1])));
  CHECK(g[3] == 0);
  CHECK(g[4] == 0);
  // One large value does not overflow, nor do small ones vanish.
  CHECK(segment_logsumexp(from_values<float>({2}, {1e4F, 1e4F}),
                          from_values<std::int64_t>({2}, {0, 2}))
            .item() == doctest::Approx(1e4 + std::log(2)));
  CHECK(segment_logsumexp(from_values<float>({2}, {-1e4F, -2e4F}),
                          from_values<std::int64_t>({2}, {0, 2}))
            .item() == -1e4);
}

TEST_CASE("segments: long ones, in f32, as reductions of the whole in f64") {
  Generator rng{2};
  const std::int64_t rows = 150000;
  const Tensor x = randn({rows, 5}, f64, rng), r = randn({2, 5}, f64, rng);
  const Tensor offsets = from_values<std::int64_t>({3}, {0, 100, rows});
  const auto check = [&](Op f, auto reduce) {
    const Tensor first = reduce(slice(x, 0, 0, 100)), rest = reduce(slice(x, 0, 100, rows));
    const Tensor y = f(x.to(f32), offsets).to(f64);
    CHECK(test::distance(slice(y, 0, 0, 1), unsqueeze(first, 0)) < 1e-6);
    CHECK(test::distance(slice(y, 0, 1, 2), unsqueeze(rest, 0)) < 1e-5);
    Tape tape;
    const Tensor a = tape.watch(x.to(f32)), b = tape.watch(x);
    CHECK(test::distance(tape.grad(f(a, offsets), {a}, r.to(f32))[0].to(f64),
                         tape.grad(f(b, offsets), {b}, r)[0]) < 1e-5);
  };
  check(segment_sum, [](const Tensor& t) { return sum(t, {0}); });
  check(segment_mean, [](const Tensor& t) { return mean(t, {0}); });
  check(segment_max, [](const Tensor& t) { return max(t, {0}); });
  check(segment_logsumexp, [](const Tensor& t) { return logsumexp(t, {0}); });
}

TEST_CASE("segments: pooling the nodes of a batch of graphs") {
  const Graph a(2, from_values<std::int64_t>({1, 2}, {0, 1})),
      b(3, from_values<std::int64_t>({1, 2}, {0, 2}));
  const std::vector<Graph> parts{a, b, a};
  const Graph batch = Graph::batch(parts);
  const Tensor x = from_values<double>({7, 1}, {1, 2, 3, 4, 5, 6, 7});
  CHECK(segment_mean(x, batch.graph_offsets()).to_vector<double>() ==
        std::vector<double>{1.5, 4, 6.5});
  CHECK(segment_max(x, batch.graph_offsets()).shape() == Shape{3, 1});
}

TEST_CASE("segments: errors name the op and what was given") {
  const Tensor x = zeros({4, 2});
  const auto offsets = [](std::initializer_list<std::int64_t> values) {
    return from_values<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
  };
  CHECK_THROWS_WITH_AS(segment_sum(x, offsets({0, 3})),
                       "segment_sum: offsets must go from 0 to the 4 rows of values, got 0 to 3",
                       Error);
  CHECK_THROWS_WITH_AS(segment_max(x, offsets({0, 3, 2, 4})),
                       "segment_max: offsets go down from 3 to 2 behind position 1", Error);
  CHECK_THROWS_WITH_AS(segment_mean(x, zeros({2})),
                       "segment_mean: expects i64 offsets of shape (segments + 1), got f32 (2)",
                       Error);
  CHECK_THROWS_WITH_AS(segment_logsumexp(Tensor(), offsets({0})),
                       "segment_logsumexp: an input is undefined", Error);
  CHECK_THROWS_AS(segment_sum(zeros({4}, i32), offsets({0, 4})), Error);
}

}  // namespace lipgrad
