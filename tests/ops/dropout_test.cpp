#include <lipgrad/ops/dropout.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/philox.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

TEST_CASE("dropout draws anew at each call, repeats from the same state, passes in evaluation") {
  const Tensor x = ones({100, 30});
  Generator rng{5};
  const Tensor a = dropout(x, 0.25, Mode::train(rng)), b = dropout(x, 0.25, Mode::train(rng));
  CHECK(!bitwise_equal(a, b));
  Generator again{5};
  CHECK(bitwise_equal(a, dropout(x, 0.25, Mode::train(again))));
  std::int64_t kept = 0;
  for (float v : a.to_vector<float>()) {
    CHECK((v == 0 || v == 1 / 0.75f));
    kept += v != 0;
  }
  CHECK(std::abs(kept / 3000.0 - 0.75) < 0.03);
  CHECK(dropout(x, 0.25, Mode::eval()).raw_data() == x.raw_data());
  CHECK(dropout(x, 0, Mode::train(rng)).raw_data() == x.raw_data());
  CHECK(rng.next_draw() == 2);
  CHECK(dropout(x, 1, Mode::train(rng)).to_vector<float>() == std::vector<float>(3000));
  CHECK(dropout(zeros({0, 3}), 0.5, Mode::train(rng)).shape() == Shape{0, 3});
}

TEST_CASE("the gradient of dropout has the mask of its forward pass") {
  Generator rng{5};
  Tape tape;
  const Tensor x = tape.watch(ones({50}, f64));
  const Tensor y = dropout(x, 0.5, Mode::train(rng));
  dropout(x, 0.5, Mode::train(rng));  // another draw in between
  CHECK(bitwise_equal(tape.grad(y, {x}, ones({50}, f64))[0], y.detach()));
}

TEST_CASE("dropout on a sparse matrix acts on its values") {
  const CsrMatrix a = CsrMatrix::from_dense(full({20, 3}, 2));
  Generator rng{5}, same{5};
  const CsrMatrix b = dropout(a, 0.5, Mode::train(rng));
  CHECK(b.pattern() == a.pattern());
  CHECK(bitwise_equal(b.values(), dropout(a.values(), 0.5, Mode::train(same))));
}

TEST_CASE("drop_path drops samples as a whole, by their element of the draw") {
  constexpr std::int64_t samples = 400;
  const Tensor x = ones({samples, 5, 7});
  Generator rng{5};
  const Tensor y = drop_path(x, 0.25, Mode::train(rng));
  std::int64_t kept = 0;
  int mixed = 0;
  for (std::int64_t b = 0; b < samples; ++b) {
    const float* sample = y.data<float>() + b * 35;
    const bool keeps = unit_float(philox_word(5, 0, b)) >= 0.25f;
    kept += keeps;
    for (int i = 0; i < 35; ++i) mixed += sample[i] != (keeps ? 1 / 0.75f : 0);
  }
  CHECK(mixed == 0);
  CHECK(std::abs(kept / double(samples) - 0.75) < 0.07);
  CHECK(!bitwise_equal(drop_path(x, 0.25, Mode::train(rng)), y));
  CHECK(rng.next_draw() == 2);
  CHECK(drop_path(x, 0.25, Mode::eval()).raw_data() == x.raw_data());
  CHECK(drop_path(x, 0, Mode::train(rng)).raw_data() == x.raw_data());
  // What is dropped is zero whatever it was.
  for (const float v : drop_path(full({3, 2}, NAN), 1, Mode::train(rng)).to_vector<float>())
    CHECK(v == 0);
  Generator again{5};
  Tape tape;
  const Tensor at = tape.watch(x);
  const Tensor value = drop_path(at, 0.25, Mode::train(again));
  drop_path(at, 0.25, Mode::train(again));  // another draw in between
  CHECK(bitwise_equal(tape.grad(value, {at}, ones(x.shape()))[0], y));
  CHECK_THROWS_WITH_AS(drop_path(x, -0.5, Mode::eval()),
                       "drop_path: p must lie in [0, 1], got -0.5", Error);
  CHECK_THROWS_AS(drop_path(ones({}), 0.5, Mode::train(rng)), Error);
}

TEST_CASE("dropout names what does not fit") {
  CHECK_THROWS_WITH_AS(dropout(ones({2}), 1.5, Mode::eval()),
                       "dropout: p must lie in [0, 1], got 1.5", Error);
  Generator rng;
  CHECK_THROWS_WITH_AS(dropout(arange(3), 0.5, Mode::train(rng)),
                       "dropout: expects f32 or f64, got i64", Error);
}

}  // namespace
}  // namespace lipgrad
