#include <lipgrad/ops/index.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

using Doubles = std::vector<double>;

TEST_CASE("gather, scatter_add, embedding") {
  const Tensor x = from_values<double>({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor index = from_values<std::int32_t>({4}, {2, 0, 2, 2});
  CHECK(gather(x, index).to_vector<double>() == Doubles{5, 6, 1, 2, 5, 6, 5, 6});
  const Tensor square = from_values<std::int64_t>({2, 2}, {2, 0, 2, 1});
  CHECK(embedding(x, square).shape() == Shape{2, 2, 2});
  CHECK(scatter_add(x, from_values<std::int64_t>({3}, {1, 3, 1}), 4).to_vector<double>() ==
        Doubles{0, 0, 6, 8, 0, 0, 3, 4});
  CHECK(scatter_add(embedding(x, square), square, 3).to_vector<double>() ==
        Doubles{1, 2, 3, 4, 10, 12});
  CHECK(gather(arange(5), index).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, 0, 2, 2});
  CHECK(gather(x, zeros({0}, i64)).shape() == Shape{0, 2});
  CHECK(scatter_add(zeros({0, 2}), zeros({0}, i64), 3).to_vector<float>() == std::vector<float>(6));
  CHECK(gather(x, full({}, 1, i64)).to_vector<double>() == Doubles{3, 4});
  Tape tape;
  const Tensor table = tape.watch(x);
  CHECK(tape.grad(embedding(table, index), {table}, ones({4, 2}, f64))[0].to_vector<double>() ==
        Doubles{1, 1, 0, 0, 3, 3});
  CHECK(tape.grad(scatter_add(table, from_values<std::int64_t>({3}, {1, 0, 1}), 2), {table},
                  from_values<double>({2, 2}, {1, 2, 3, 4}))[0]
            .to_vector<double>() == Doubles{3, 4, 1, 2, 3, 4});
}

TEST_CASE("indices are checked") {
  const Tensor x = ones({3, 2});
  CHECK_THROWS_WITH_AS(gather(x, from_values<std::int64_t>({2}, {1, 3})),
                       "gather: index 3 at position 1 is not in [0, 3)", Error);
  CHECK_THROWS_WITH_AS(embedding(x, from_values<std::int32_t>({2}, {-1, 2})),
                       "embedding: index -1 at position 0 is not in [0, 3)", Error);
  CHECK_THROWS_WITH_AS(scatter_add(x, from_values<std::int64_t>({3}, {0, 1, 2}), 2),
                       "scatter_add: index 2 at position 2 is not in [0, 2)", Error);
  CHECK_THROWS_WITH_AS(scatter_add(x, from_values<std::int64_t>({2}, {0, 1}), 2),
                       "scatter_add: the index (2) is not the leading part of (3, 2)", Error);
  CHECK_THROWS_WITH_AS(gather(x, ones({2})), "gather: expects an i32 or i64 index, got f32", Error);
  CHECK_THROWS_AS(gather(full({}, 1), arange(1)), Error);
  CHECK_THROWS_AS(gather(x, Tensor()), Error);
}

}  // namespace
}  // namespace lipgrad
