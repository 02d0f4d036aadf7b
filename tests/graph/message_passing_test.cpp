#include <lipgrad/graph/message_passing.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("neighbor_max: the largest source; ties, NaN, nodes without edges") {
  // Into 0: 3, 1, 1, 2. Into 2: 2 (itself). Into 3: 0, 4. 1 and 4 have no edges into them.
  const Graph graph(5,
                    from_values<std::int64_t>({7, 2}, {3, 0, 1, 0, 1, 0, 2, 0, 2, 2, 0, 3, 4, 3}));
  Tape tape;
  const Tensor x = tape.watch(
      from_values<double>({5, 3}, {-1, 9, nan, 4, -2, 0, 4, -3, 1, 2, -2, 7, -1, 0, nan}));
  const Tensor y = neighbor_max(graph, x);
  const std::vector<double> got = y.to_vector<double>();
  CHECK(got[0] == 4);
  CHECK(got[1] == -2);
  CHECK(got[2] == 7);
  for (const int c : {3, 4, 5, 12, 13, 14}) CHECK(got[c] == 0);
  CHECK(got[6] == 4);
  CHECK(got[7] == -3);
  CHECK(got[8] == 1);
  CHECK(got[9] == -1);
  CHECK(got[10] == 9);
  CHECK(std::isnan(got[11]));
  // Ties: 1 before 2 and 3, once though the edge occurs twice; of two NaN that of node 0.
  Tensor cotangent = zeros({5, 3}, f64);
  for (std::int64_t i = 0; i < 15; ++i) cotangent.mutable_data<double>()[i] = double(i + 1);
  const std::vector<double> g = tape.grad(y, {x}, cotangent)[0].to_vector<double>();
  const std::vector<double> expected{10, 11, 12, 1, 2, 0, 7, 8, 9, 0, 0, 3, 0, 0, 0};
  CHECK(g == expected);
}

TEST_CASE("neighbor_max: any number of dimensions and edges") {
  Generator rng{3};
  const std::int64_t nodes = 700;
  Tensor ends = rand_int({20000, 2}, nodes, rng);
  for (std::int64_t k = 0; k < 9000; ++k) ends.mutable_data<std::int64_t>()[2 * k + 1] = 5;
  const Graph graph(nodes, ends);
  const Tensor x = randn({nodes, 3, 7}, f32, rng), y = neighbor_max(graph, x);
  REQUIRE(y.shape() == x.shape());
  std::vector<float> expected(nodes * 21, -1e9F);
  for (std::int64_t k = 0; k < 20000; ++k)
    for (std::int64_t c = 0; c < 21; ++c) {
      float& top = expected[ends.data<std::int64_t>()[2 * k + 1] * 21 + c];
      top = std::max(top, x.data<float>()[ends.data<std::int64_t>()[2 * k] * 21 + c]);
    }
  CHECK(y.to_vector<float>() == expected);
  CHECK_THROWS_WITH_AS(neighbor_max(graph, randn({5, 2}, f32, rng)),
                       "neighbor_max: a graph of 700 nodes needs (700, ...), got (5, 2)", Error);
}

}  // namespace lipgrad
