#include <lipgrad/ops/weight_average.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {
namespace {

TEST_CASE_TEMPLATE("an average follows the weights by its formula", T, float, double) {
  Module net;
  Linear a{net, "a", 37, 5, {.dtype = dtype_of<T>()}}, b{net, "b", 5, 1, {.dtype = dtype_of<T>()}};
  Generator rng{1};
  net.initialize(rng);
  WeightAverage average(net, 0.9);
  std::vector<std::vector<double>> expected;
  for (const Parameter* p : net.parameters())
    expected.push_back(p->value().to(f64).to_vector<double>());
  for (int step = 0; step < 5; ++step) {
    net.initialize(rng);
    average.update();
    std::size_t i = 0;
    for (const Parameter* p : net.parameters()) {
      const std::vector<double> now = p->value().to(f64).template to_vector<double>();
      for (std::size_t k = 0; k < now.size(); ++k)
        expected[i][k] = 0.9 * expected[i][k] + 0.1 * now[k];
      ++i;
    }
  }
  average.copy_to_module();
  const double limit = sizeof(T) == 4 ? 1e-6 : 1e-14;
  std::size_t i = 0;
  for (const Parameter* p : net.parameters()) {
    const std::vector<double> got = p->value().to(f64).template to_vector<double>();
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(std::abs(got[k] - expected[i][k]) <= limit);
    ++i;
  }
}

TEST_CASE("an average goes on from its state") {
  Module net, other;
  Linear a{net, "a", 4, 3}, b{other, "a", 4, 3};
  Generator rng{2};
  net.initialize(rng);
  WeightAverage average(net, 0.5);
  net.initialize(rng);
  average.update();
  other.initialize(rng);
  WeightAverage resumed(other, 0.5);
  const auto state = average.state();
  CHECK(state.size() == 2);
  CHECK(state.contains("a.weight/average"));
  resumed.load_state(state);
  b.weight.set_value(a.weight);
  b.bias->set_value(*a.bias);
  average.update();
  resumed.update();
  average.copy_to_module();
  resumed.copy_to_module();
  CHECK(bitwise_equal(a.weight, b.weight));
  CHECK(bitwise_equal(*a.bias, *b.bias));

  CHECK_THROWS_WITH_AS(WeightAverage(net, 1), "weight_average: decay 1 is not in [0, 1)", Error);
  CHECK_THROWS_WITH_AS(resumed.load_state({}), "weight_average: a state of 0 tensors for 2", Error);
  auto wrong = average.state();
  wrong["a.bias/average"] = zeros({4});
  CHECK_THROWS_WITH_AS(resumed.load_state(wrong),
                       "weight_average: a.bias/average is f32 (4), expected f32 (3)", Error);
}

}  // namespace
}  // namespace lipgrad
