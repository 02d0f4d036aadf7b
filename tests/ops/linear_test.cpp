#include <lipgrad/ops/linear.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/spmm.h>

namespace lipgrad {
namespace {

// About a third of the entries are nonzero; one row and one column are empty.
Tensor sparse_values(const Shape& shape, Generator& rng) {
  Tensor x = randn(shape, f64, rng);
  double* value = x.mutable_data<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    if (i % 3 != 0 || i / shape[1] == 1 || i % shape[1] == 2) value[i] = 0;
  return x;
}

double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double worst = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    worst = std::max(worst, std::abs(a.data<double>()[i] - b.data<double>()[i]));
  return worst;
}

}  // namespace

TEST_CASE("linear: values by the definition") {
  Generator rng{1};
  const Tensor x = randn({2, 3, 4}, f64, rng), w = randn({5, 4}, f64, rng),
               b = randn({5}, f64, rng);
  const Tensor y = linear(x, w, b, {Activation::leaky_relu});
  REQUIRE(y.shape() == Shape{2, 3, 5});
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 5; ++j) {
      double z = b.data<double>()[j];
      for (std::int64_t l = 0; l < 4; ++l)
        z += x.data<double>()[i * 4 + l] * w.data<double>()[j * 4 + l];
      CHECK(y.data<double>()[i * 5 + j] == doctest::Approx(z > 0 ? z : 0.01 * z));
    }
  CHECK(linear(zeros({4}, f64), w).shape() == Shape{5});
  CHECK(linear(zeros({0, 4}, f64), w, b).shape() == Shape{0, 5});
}

TEST_CASE("linear: sparse x gives what the dense one gives") {
  Generator rng{2};
  const Tensor dense = sparse_values({7, 6}, rng);
  const CsrMatrix sparse = CsrMatrix::from_dense(dense);
  for (Activation f : {Activation::identity, Activation::relu, Activation::silu, Activation::elu})
    for (bool biased : {false, true}) {
      Tape tape;
      const Tensor w = tape.watch(randn({5, 6}, f64, rng));
      const Tensor b = biased ? tape.watch(randn({5}, f64, rng)) : Tensor();
      const Tensor values = tape.watch(sparse.values());
      const Tensor y = linear(sparse.with_values(values), w, b, {f});
      const Tensor expected = linear(tape.watch(dense), w, b, {f});
      CHECK(difference(y, expected) < 1e-14);
      const Tensor g = randn(y.shape(), f64, rng);
      std::vector<Tensor> wanted{w};
      if (biased) wanted.push_back(b);
      const auto got = tape.grad(y, wanted, g, {.retain = true}),
                 right = tape.grad(expected, wanted, g, {.retain = true});
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], right[i]) < 1e-13);
    }
}

TEST_CASE("linear: what the activation's gradient needs, and nothing more, is kept") {
  Generator rng{3};
  const Tensor x = randn({64, 32}, f32, rng), w = randn({16, 32}, f32, rng);
  const std::int64_t y_bytes = 64 * 16 * 4, inputs = x.nbytes() + w.nbytes();
  for (auto [f, kept] :
       {std::pair{Activation::identity, 0}, {Activation::relu, 1}, {Activation::gelu, 1}}) {
    Tape tape;
    const Tensor y = linear(tape.watch(x), tape.watch(w), {}, {f});
    CHECK(tape.bytes_saved() == inputs + kept * y_bytes);
  }
}

TEST_CASE("linear and spmm: errors say what was given") {
  const Tensor w = zeros({5, 4});
  CHECK_THROWS_WITH_AS(linear(zeros({2, 3}), w),
                       "linear: x (2, 3) needs a weight of (out, 3), got (5, 4)", Error);
  CHECK_THROWS_WITH_AS(linear(zeros({2, 4}), w, zeros({4})),
                       "linear: weight (5, 4) needs a bias of (5), got (4)", Error);
  CHECK_THROWS_WITH_AS(linear(zeros({2, 4}), w, {}, {Activation::elu, -1.0}),
                       "linear: alpha of elu must not be negative, got -1", Error);
  CHECK_THROWS_AS(linear(zeros({}), w), Error);
  CHECK_THROWS_AS(linear(zeros({2, 4}, f64), w), Error);
  CHECK_THROWS_AS(linear(CsrMatrix(), w), Error);
  const CsrMatrix a = CsrMatrix::from_dense(zeros({3, 4}));
  CHECK_THROWS_WITH_AS(linear(a, zeros({5, 3})),
                       "linear: x (3, 4) needs a weight of (out, 4), got (5, 3)", Error);
  CHECK_THROWS_WITH_AS(spmm(a, zeros({3, 2})),
                       "spmm: a sparse (3, 4) needs a dense (4, features), got (3, 2)", Error);
  CHECK_THROWS_AS(spmm(a, zeros({4})), Error);
  CHECK_THROWS_AS(spmm(a, zeros({4, 2}, f64)), Error);
}

TEST_CASE("spmm: values by the definition") {
  Generator rng{4};
  const Tensor dense = sparse_values({7, 6}, rng), x = randn({6, 3}, f64, rng);
  const Tensor y = spmm(CsrMatrix::from_dense(dense), x);
  REQUIRE(y.shape() == Shape{7, 3});
  for (std::int64_t i = 0; i < 7; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < 6; ++l)
        sum += dense.data<double>()[i * 6 + l] * x.data<double>()[l * 3 + j];
      CHECK(y.data<double>()[i * 3 + j] == doctest::Approx(sum));
    }
}

}  // namespace lipgrad
