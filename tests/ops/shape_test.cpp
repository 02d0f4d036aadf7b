#include <lipgrad/ops/shape.h>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>

namespace lipgrad {
namespace {

Tensor counted(const Shape& shape) { return arange(shape.numel(), f32).alias(shape); }

TEST_CASE("reshape shares storage and works out one size") {
  const Tensor x = counted({2, 6});
  CHECK(reshape(x, {3, -1}).shape() == Shape{3, 4});
  CHECK(reshape(x, {3, -1}).raw_data() == x.raw_data());
  CHECK(flatten(counted({2, 3, 4}), 1).shape() == Shape{2, 12});
  CHECK(flatten(full({}, 1)).shape() == Shape{1});
  CHECK(squeeze(unsqueeze(x, -1), 2).shape() == x.shape());
  CHECK_THROWS_WITH_AS(reshape(x, Shape{5, 2}), "reshape: (2, 6) has 12 elements, (5, 2) has 10",
                       Error);
  CHECK_THROWS_WITH_AS(reshape(x, {5, -1}),
                       "reshape: the 12 elements of (2, 6) do not divide into pieces of 5", Error);
  CHECK_THROWS_AS(reshape(x, {-1, -1}), Error);
  CHECK_THROWS_AS(reshape(x, {-2, 6}), Error);
  CHECK_THROWS_WITH_AS(squeeze(x, 0), "squeeze: dim 0 of (2, 6) has size 2, not 1", Error);
}

TEST_CASE("permute moves every element to its place") {
  Generator rng{1};
  for (const Shape& shape :
       {Shape{2, 3, 4, 5}, Shape{1, 70, 3, 33}, Shape{40, 1, 50, 2}, Shape{2, 0, 3, 1}}) {
    for (const std::initializer_list<int> order : {std::initializer_list<int>{3, 1, 0, 2},
                                                   {0, 2, 1, 3},
                                                   {1, 0, 2, 3},
                                                   {3, 2, 1, 0},
                                                   {0, 1, 3, 2}}) {
      for (DType dtype : {f32, f64, u8}) {
        const Tensor x = randn(shape, f64, rng).to(dtype == u8 ? f32 : dtype).to(dtype);
        const Tensor y = permute(x, order);
        const int* o = order.begin();
        bool same = true;
        const Tensor xd = x.to(f64), yd = y.to(f64);
        std::int64_t i[4];
        for (i[0] = 0; i[0] < shape[0]; ++i[0])
          for (i[1] = 0; i[1] < shape[1]; ++i[1])
            for (i[2] = 0; i[2] < shape[2]; ++i[2])
              for (i[3] = 0; i[3] < shape[3]; ++i[3]) {
                const std::int64_t from =
                    ((i[0] * shape[1] + i[1]) * shape[2] + i[2]) * shape[3] + i[3];
                std::int64_t to = 0;
                for (int d = 0; d < 4; ++d) to = to * y.shape()[d] + i[o[d]];
                same &= xd.data<double>()[from] == yd.data<double>()[to];
              }
        CHECK(same);
      }
    }
  }
  CHECK_THROWS_WITH_AS(permute(counted({2, 3}), {0, 0}), "permute: dim 0 is given twice for (2, 3)",
                       Error);
  CHECK_THROWS_WITH_AS(permute(counted({2, 3}), {0}), "permute: 1 dimensions given for (2, 3)",
                       Error);
}

TEST_CASE("slice, split and concat") {
  const Tensor x = counted({3, 4});
  CHECK(slice(x, 0, 1, 3).raw_data() == x.data<float>() + 4);  // shares storage
  CHECK(slice(x, 1, -2, 4).to_vector<float>() == std::vector<float>{2, 3, 6, 7, 10, 11});
  CHECK(slice(x, 0, 3, 3).numel() == 0);
  const std::vector<Tensor> pieces = split(x, {1, 0, 3}, 1);
  CHECK(pieces[0].to_vector<float>() == std::vector<float>{0, 4, 8});
  CHECK(bitwise_equal(concat(pieces, 1), x));
  CHECK(bitwise_equal(stack(std::vector<Tensor>{slice(x, 0, 0, 1), slice(x, 0, 1, 2)}, 0),
                      reshape(slice(x, 0, 0, 2), {2, 1, 4})));
  CHECK_THROWS_WITH_AS(slice(x, 1, 3, 2), "slice: [3, 2) is no part of dim 1 of (3, 4)", Error);
  CHECK_THROWS_WITH_AS(slice(x, 2, 0, 1), "slice: dim 2 out of range for (3, 4)", Error);
  CHECK_THROWS_WITH_AS(split(x, {1, 2}, 1),
                       "split: the sizes (1, 2) do not add up to dim 1 of (3, 4)", Error);
  CHECK_THROWS_WITH_AS(concat({x, counted({2, 3})}, 0),
                       "concat: shapes (3, 4) and (2, 3) differ in more than dim 0", Error);
  CHECK_THROWS_AS(concat({x, x.to(f64)}, 0), Error);
}

TEST_CASE("broadcast_to repeats") {
  CHECK(broadcast_to(counted({2, 1}), {2, 2, 3}).to_vector<float>() ==
        std::vector<float>{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1});
  CHECK_THROWS_WITH_AS(broadcast_to(counted({2}), {3}),
                       "broadcast_to: (2) does not broadcast to (3)", Error);
}

TEST_CASE("cast has a gradient between floats and refuses to lose one") {
  Tape tape;
  const Tensor x = tape.watch(counted({3}));
  const Tensor g =
      tape.grad(cast(x, f64), {x}, from_values<double>({3}, {1, 2, 3}), {.retain = true})[0];
  CHECK(g.to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK_THROWS_AS(cast(x, i32), Error);
  CHECK_THROWS_WITH_AS(x.to(f64), doctest::Contains("use cast()"), Error);
  CHECK(cast(x.detach(), i32).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 2});
}

}  // namespace
}  // namespace lipgrad
