#include <lipgrad/core/random.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

TEST_CASE("philox gives the known answers of its authors") {
  const auto words = [](std::uint64_t seed, std::uint64_t draw, std::uint64_t index) {
    const PhiloxBlock block = philox(seed, draw, index);
    return std::vector<std::uint32_t>(block.word, block.word + 4);
  };
  using Words = std::vector<std::uint32_t>;
  CHECK(words(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(~0ull, ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("draws depend on seed and number, not on threads or shape") {
  const int threads = num_threads();
  std::vector<Tensor> normal, uniform;
  for (int count : {1, 2}) {
    set_num_threads(count);
    Generator rng{42};
    normal.push_back(randn({100001}, f32, rng));
    uniform.push_back(rand_uniform({100001}, -1, 1, f64, rng));
    CHECK(rng.next_draw() == 2);
  }
  set_num_threads(threads);
  CHECK(bitwise_equal(normal[0], normal[1]));
  CHECK(bitwise_equal(uniform[0], uniform[1]));
  Generator a{1}, b{2}, c{1};
  const Tensor x = randn({64}, f64, a);
  CHECK(!bitwise_equal(x, randn({64}, f64, b)));
  CHECK(!bitwise_equal(x, randn({64}, f64, a)));
  c.take_draw();
  c.restore(1, 0);
  CHECK(bitwise_equal(x.alias({7}), randn({7}, f64, c)));  // element e is the same in any shape
}

TEST_CASE("moments and ranges are those of the distributions") {
  Generator rng{7};
  const std::int64_t n = 1 << 20;
  for (DType dtype : {f32, f64}) {
    const std::vector<double> z = randn({n}, dtype, rng).to(f64).to_vector<double>();
    double mean = 0, square = 0, fourth = 0;
    for (double v : z) {
      mean += v / n;
      square += v * v / n;
      fourth += v * v * v * v / n;
    }
    CHECK(std::abs(mean) < 5 / std::sqrt(n));
    CHECK(std::abs(square - 1) < 5 * std::sqrt(2.0 / n));
    CHECK(std::abs(fourth - 3) < 5 * std::sqrt(96.0 / n));
    const std::vector<double> u = rand_uniform({n}, 2, 5, dtype, rng).to(f64).to_vector<double>();
    const auto [low, high] = std::minmax_element(u.begin(), u.end());
    CHECK(*low >= 2);
    CHECK(*high < 5);
    CHECK(*low < 2.001);
    CHECK(*high > 4.999);
  }
  const std::vector<std::int64_t> k = rand_int({60000}, 6, rng).to_vector<std::int64_t>();
  for (std::int64_t face = 0; face < 6; ++face)
    CHECK(std::abs(std::count(k.begin(), k.end(), face) - 10000) < 500);
  std::vector<std::int64_t> order = rand_permutation(1000, rng).to_vector<std::int64_t>();
  CHECK(!std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  CHECK(order == arange(1000).to_vector<std::int64_t>());
}

TEST_CASE("wrong arguments are errors") {
  Generator rng{1};
  CHECK_THROWS_WITH_AS(randn({2}, i32, rng), "randn: expects f32 or f64, got i32", Error);
  CHECK_THROWS_WITH_AS(rand_uniform({2}, 1, 0, f32, rng),
                       "rand_uniform: low 1 and high 0 are no range", Error);
  CHECK_THROWS_AS(rand_int({2}, 0, rng), Error);
  CHECK_THROWS_WITH_AS(Mode::eval().rng(),
                       "mode: evaluation mode has no random numbers; use Mode::train(rng)", Error);
}

}  // namespace
}  // namespace lipgrad
