#include <lipgrad/vision/dense_attention.h>

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/philox.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/matmul.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/softmax.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

struct Case {
  std::int64_t batch, tokens, heads, features;
  DenseAttentionOptions options = {};
  std::int64_t windows = 0;  // with regions; 0: none
  bool bias = false, numbers = false;
};

std::vector<Case> cases() {
  DenseAttentionOptions cosine, paper, dropped;
  cosine.score = paper.score = AttentionScore::cosine;
  cosine.tau = 10;
  paper.normalise_v = true;
  paper.eps_mode = LengthEps::inside_root;
  paper.eps = 1e-3;
  dropped.dropout = 0.3;
  return {{3, 5, 2, 4},
          {4, 16, 2, 8, cosine, 2, true},
          {4, 49, 3, 32, {}, 2, true},
          {2, 49, 1, 32, paper, 0, false, true},
          {2, 7, 3, 5, dropped, 1, true, true},
          {1, 197, 2, 33, paper, 1, true},
          {1, 300, 1, 3, dropped},
          {5, 1, 2, 6, cosine, 5, false, true}};
}

struct Data {
  Tensor qkv;
  DenseAttentionTerms terms;
};

Data data_of(const Case& c, DType dtype) {
  Generator rng{7};
  const auto draw = [&](const Shape& shape) { return randn(shape, f64, rng).to(dtype); };
  Data data{draw({c.batch, c.tokens, 3, c.heads, c.features}), {}};
  if (c.bias) data.terms.bias = draw({c.heads, c.tokens, c.tokens});
  if (c.numbers && !c.options.tau) data.terms.tau = draw({c.heads});
  if (c.numbers) data.terms.nu = draw({1});
  if (c.windows > 0) {
    std::vector<std::int32_t> label;
    for (std::int64_t i = 0; i < c.windows * c.tokens; ++i)
      label.push_back(i == 2 ? 9 : static_cast<std::int32_t>(i * 5 % 7 % 3));
    data.terms.regions = from_vector({c.windows, c.tokens}, label);
  }
  return data;
}

// By the ops it is made of, with scores as a tensor.
Tensor composed(const Case& c, const Tensor& qkv, const DenseAttentionTerms& terms,
                const Generator& draws) {
  const auto part = split(permute(qkv, {2, 0, 3, 1, 4}), {1, 1, 1}, 0);
  const Shape rows{c.batch, c.heads, c.tokens, c.features};
  const bool clamp = c.options.eps_mode == LengthEps::clamp;
  const auto unit = [&](const Tensor& x) {
    const Tensor square = sum(mul(x, x), {3}, true);
    return div(x, clamp ? sqrt(square) : sqrt(add(square, c.options.eps)));
  };
  Tensor q = reshape(part[0], rows), k = reshape(part[1], rows), v = reshape(part[2], rows);
  const bool cosine = c.options.score == AttentionScore::cosine;
  if (cosine) {
    q = unit(q);
    k = unit(k);
  }
  if (c.options.normalise_v) v = unit(v);
  Tensor s = matmul(q, k, {.transpose_b = true});
  const Shape by_head{c.heads, 1, 1};
  if (terms.tau.defined()) {
    s = mul(s, reshape(terms.tau, by_head));
  } else {
    s = mul(s, c.options.tau.value_or(cosine ? 1 : 1 / std::sqrt(double(c.features))));
  }
  if (terms.bias.defined()) s = add(s, terms.bias);
  if (terms.regions.defined()) {
    Tensor mask = zeros(s.shape(), qkv.dtype());
    const std::int32_t* label = terms.regions.data<std::int32_t>();
    for (std::int64_t at = 0; at < mask.numel(); ++at) {
      const std::int64_t j = at % c.tokens, i = at / c.tokens % c.tokens,
                         b = at / c.tokens / c.tokens / c.heads;
      const std::int32_t* mine = label + b % c.windows * c.tokens;
      if (mine[i] != mine[j]) mask.mutable_data<double>()[at] = -1e9;
    }
    s = add(s, mask);
  }
  Tensor p = softmax(s);
  if (c.options.dropout > 0) {
    Tensor keep = zeros(p.shape(), qkv.dtype());
    for (std::int64_t at = 0; at < keep.numel(); ++at) {
      const std::int64_t row = (c.tokens + 3) / 4 * 4,
                         element = at / c.tokens * row + at % c.tokens;
      const std::uint32_t word =
          philox_word(draws.seed(), draws.next_draw(), static_cast<std::uint64_t>(element));
      if (unit_float(word) >= c.options.dropout)
        keep.mutable_data<double>()[at] = 1 / (1 - c.options.dropout);
    }
    p = mul(p, keep);
  }
  Tensor y =
      reshape(permute(matmul(p, v), {0, 2, 1, 3}), {c.batch, c.tokens, c.heads * c.features});
  return terms.nu.defined() ? mul(y, terms.nu) : mul(y, c.options.nu);
}

// The result and the gradients of qkv and of the terms there are.
template <class F>
std::vector<Tensor> run(const Case& c, Data data, F&& f) {
  Tape tape;
  std::vector<Tensor> in;
  for (Tensor* t : {&data.qkv, &data.terms.bias, &data.terms.tau, &data.terms.nu}) {
    if (!t->defined()) continue;
    *t = tape.watch(*t);
    in.push_back(*t);
  }
  Generator draws{31};
  const Tensor y = f(data, draws);
  Generator rng{2};
  std::vector<Tensor> all =
      tape.grad(y, in, randn({c.batch, c.tokens, c.heads * c.features}, f64, rng).to(y.dtype()));
  all.insert(all.begin(), y.detach());
  return all;
}

std::vector<Tensor> fused(const Case& c, const Data& data) {
  return run(c, data, [&](const Data& d, Generator& draws) {
    return dense_attention(d.qkv, c.options, d.terms,
                           c.options.dropout > 0 ? Mode::train(draws) : Mode::eval());
  });
}

}  // namespace

TEST_CASE("dense_attention is what its parts give") {
  for (const Case& c : cases()) {
    CAPTURE(c.tokens);
    CAPTURE(c.features);
    const Data data = data_of(c, f64);
    const auto got = fused(c, data), expected = run(c, data, [&](const Data&d, Generator&draws) {
                                       return composed(c, d.qkv, d.terms, draws);
                                     });
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(got[i], expected[i]) <= (i == 0 ? 1e-13 : 1e-12));
    }
    const auto single = fused(c, data_of(c, f32));
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(single[i].to(f64), expected[i]) <= (i == 0 ? 2e-6 : 2e-5));
    }
  }
}

TEST_CASE("dense_attention: the same bits on any number of threads") {
  const int before = num_threads();
  for (const Case& c : cases())
    for (const DType dtype : {f32, f64}) {
      CAPTURE(c.tokens);
      const Data data = data_of(c, dtype);
      set_num_threads(1);
      const auto one = fused(c, data);
      set_num_threads(3);
      const auto three = fused(c, data);
      set_num_threads(before);
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(bitwise_equal(one[i], three[i]));
    }
}

TEST_CASE("dense_attention takes qkv as a Linear gives it, and q, k and v apart") {
  const Case c{3, 6, 2, 5};
  const Data data = data_of(c, f32);
  const Tensor whole = dense_attention(data.qkv);
  DenseAttentionOptions options;
  options.heads = 2;
  CHECK(bitwise_equal(dense_attention(reshape(data.qkv, {3, 6, 30}), options), whole));
  const auto part = split(data.qkv, {1, 1, 1}, 2);
  const Shape apart{3, 6, 2, 5};
  CHECK(bitwise_equal(dense_attention(reshape(part[0], apart), reshape(part[1], apart),
                                      reshape(part[2], apart), options),
                      whole));
}

TEST_CASE("dense_attention: regions as u8, and windows that repeat") {
  Case c{4, 9, 2, 4};
  c.windows = 2;
  const Data data = data_of(c, f32);
  const Tensor whole = dense_attention(data.qkv, {}, data.terms);
  DenseAttentionTerms bytes;
  bytes.regions = data.terms.regions.to(u8);
  CHECK(bitwise_equal(dense_attention(data.qkv, {}, bytes), whole));
  for (std::int64_t b = 0; b < 4; ++b) {
    DenseAttentionTerms one;
    one.regions = slice(data.terms.regions, 0, b % 2, b % 2 + 1);
    const Tensor y = dense_attention(slice(data.qkv, 0, b, b + 1), {}, one);
    CHECK(bitwise_equal(y, slice(whole, 0, b, b + 1)));
  }
}

TEST_CASE("dense_attention: a token that may attend to nothing gets zeros, and gives no gradient") {
  const float infinity = std::numeric_limits<float>::infinity();
  Generator rng{4};
  Tape tape;
  const Tensor qkv = tape.watch(randn({1, 3, 3, 1, 4}, f32, rng));
  Tensor shut = zeros({1, 3, 3});
  for (std::int64_t j = 0; j < 3; ++j) shut.mutable_data<float>()[3 + j] = -infinity;
  DenseAttentionTerms terms;
  terms.bias = tape.watch(shut);
  const Tensor y = dense_attention(qkv, {}, terms);
  for (std::int64_t d = 0; d < 4; ++d) {
    CHECK(y.data<float>()[4 + d] == 0);
    CHECK(y.data<float>()[d] != 0);
  }
  Tensor cotangent = zeros({1, 3, 4});
  for (std::int64_t d = 0; d < 4; ++d) cotangent.mutable_data<float>()[4 + d] = 1;
  for (const Tensor& g : tape.grad(y, {qkv, terms.bias}, cotangent))
    for (const float v : g.to_vector<float>()) CHECK(v == 0);
}

TEST_CASE("dense_attention: a NaN stays where it can be seen") {
  Generator rng{4};
  Tensor qkv = randn({2, 5, 3, 1, 4}, f32, rng);
  qkv.mutable_data<float>()[3] = std::nanf("");  // q of token 0 of window 0
  const std::vector<float> y = dense_attention(qkv).to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::isnan(y[i]));
  for (std::size_t i = 4; i < y.size(); ++i) CHECK(std::isfinite(y[i]));
}

TEST_CASE("dense_attention: rows of zeros under either eps") {
  DenseAttentionOptions options;
  options.score = AttentionScore::cosine;
  options.normalise_v = true;
  for (const LengthEps mode : {LengthEps::clamp, LengthEps::inside_root}) {
    options.eps_mode = mode;
    options.eps = 1e-2;
    Tape tape;
    const Tensor qkv = tape.watch(zeros({1, 2, 3, 1, 3}, f64));
    const Tensor y = dense_attention(qkv, options);
    for (const double v : y.to_vector<double>()) CHECK(v == 0);
    // v / eps, or v / sqrt(eps), averaged over both tokens.
    const auto g = tape.grad(y, {qkv}, ones({1, 2, 3}, f64))[0].to_vector<double>();
    for (std::size_t i = 0; i < 6; ++i) CHECK(g[i] == 0);
    CHECK(g[6] == doctest::Approx(mode == LengthEps::clamp ? 100 : 10));
  }
}

TEST_CASE("dense_attention keeps nothing of the size of the scores") {
  const std::int64_t batch = 4, tokens = 256, heads = 3, features = 8;
  Generator rng{1};
  const Tensor qkv = randn({batch, tokens, 3, heads, features}, f32, rng);
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  Tape tape;
  const Tensor x = tape.watch(qkv);
  const Tensor y = dense_attention(x);
  const Tensor g = tape.grad(y, {x}, y)[0];
  // The result, its statistics, the gradient of qkv, and little besides.
  const std::int64_t row = batch * tokens * heads * 4;
  CHECK(memory::counters().peak - before <= row * (4 * features + 2) + 4096);
  CHECK(memory::counters().peak - before < batch * heads * tokens * tokens * 4);
}

TEST_CASE("dense_attention: errors say what was given") {
  const Tensor qkv = ones({2, 4, 3, 2, 5});
  CHECK_THROWS_WITH_AS(dense_attention(ones({2, 4, 30})),
                       "dense_attention: qkv (2, 4, 30) does not split into 3 times 0 heads",
                       Error);
  CHECK_THROWS_WITH_AS(dense_attention(ones({2, 4, 2, 5})),
                       "dense_attention: qkv must be (B, T, 3, H, D) or (B, T, 3 H D), got (2, 4, "
                       "2, 5)",
                       Error);
  CHECK_THROWS_WITH_AS(dense_attention(qkv, {}, {.bias = ones({2, 4, 5})}),
                       "dense_attention: bias must be (2, 4, 4), got (2, 4, 5)", Error);
  CHECK_THROWS_WITH_AS(
      dense_attention(qkv, {}, {.regions = zeros({3, 4}, u8)}),
      "dense_attention: regions must be (windows, 4) with 2 a multiple of windows, got (3, 4)",
      Error);
  CHECK_THROWS_WITH_AS(
      dense_attention(qkv, {}, {.tau = ones({3})}),
      "dense_attention: tau must be one number or one for each of 2 heads, got (3)", Error);
  DenseAttentionOptions options;
  options.tau = 2;
  CHECK_THROWS_WITH_AS(dense_attention(qkv, options, {.tau = ones({1})}),
                       "dense_attention: tau is both a number and a tensor", Error);
  options = {};
  options.eps = 0;
  CHECK_THROWS_WITH_AS(dense_attention(qkv, options),
                       "dense_attention: eps must be positive, got 0", Error);
  options = {};
  options.dropout = 2;
  CHECK_THROWS_AS(dense_attention(qkv, options), Error);
  CHECK_THROWS_AS(dense_attention(ones({2, 4, 3, 2, 5}, i64)), Error);
  CHECK_THROWS_AS(dense_attention(ones({2, 0, 3, 2, 5})), Error);
}

}  // namespace lipgrad
