#include <lipgrad/vision/dense_attention.h>

#include <lipgrad/core/tape.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::difference;

struct Case {
  std::int64_t batch, tokens, heads, features;
  int variant =
      0;  // 1: bias; 2: cosine, regions; 3: all of it, with learned tau and nu and dropout
};

// The result and the gradients of all there is.
std::vector<Tensor> run(const Case& c, DType dtype, Device device) {
  Generator rng{8};
  Tape tape;
  std::vector<Tensor> in;
  const auto input = [&](const Shape& shape) {
    in.push_back(tape.watch(randn(shape, f64, rng).to(dtype).to(device)));
    return in.back();
  };
  const Tensor qkv = input({c.batch, c.tokens, 3, c.heads, c.features});
  DenseAttentionOptions options;
  DenseAttentionTerms terms;
  if (c.variant % 2 == 1) terms.bias = input({c.heads, c.tokens, c.tokens});
  if (c.variant >= 2) {
    options.score = AttentionScore::cosine;
    std::vector<std::int32_t> label;
    for (std::int64_t i = 0; i < c.tokens; ++i)
      label.push_back(i == 3 ? 9 : static_cast<std::int32_t>(i * 7 % 5 / 2));
    terms.regions = from_vector({1, c.tokens}, label).to(device);
  }
  if (c.variant == 2) options.tau = 7;
  if (c.variant == 3) {
    options.normalise_v = true;
    options.eps = 1e-3;
    options.eps_mode = LengthEps::inside_root;
    options.dropout = 0.3;
    terms.tau = input({c.heads});
    terms.nu = input({1});
  }
  Generator draws{21};
  const Tensor y = dense_attention(qkv, options, terms, Mode::train(draws));
  std::vector<Tensor> all = tape.grad(y, in, randn(y.shape(), f64, rng).to(dtype).to(device));
  all.insert(all.begin(), y.detach());
  return all;
}

template <class T>
void check(const Case& c) {
  CAPTURE(c.tokens);
  CAPTURE(c.features);
  CAPTURE(c.variant);
  CAPTURE(sizeof(T));
  const DType dtype = sizeof(T) == 4 ? f32 : f64;
  const auto expected = run(c, dtype, cpu_device), got = run(c, dtype, cuda_device());
  for (std::size_t k = 0; k < got.size(); ++k) {
    CAPTURE(k);
    CHECK(difference(got[k].to_vector<T>(), expected[k].to_vector<T>()) <= (sizeof(T) == 8 ? 1e-10
                                                                            : k == 0       ? 1e-5
                                                                                           : 5e-5));
  }
}

}  // namespace

TEST_CASE("dense_attention: tiles and slabs that end anywhere, against the CPU") {
  if (!test::with_cuda()) return;
  // Windows; one tile to the last token, one token more, and several; features of several slabs.
  const Case shapes[] = {{3, 16, 2, 8},   {2, 49, 3, 32},  {1, 64, 1, 16}, {1, 65, 2, 5},
                         {1, 130, 1, 70}, {2, 33, 1, 129}, {70, 4, 2, 3},  {2, 1, 2, 7}};
  int turn = 0;
  for (Case c : shapes)
    for (c.variant = 0; c.variant < 4; ++c.variant) {
      if (c.tokens == 1 && c.variant > 0) continue;  // scores of one token have no gradient
      ++turn % 2 == 0 ? check<float>(c) : check<double>(c);
      if (c.tokens == 49) check<float>(c);
    }
}

TEST_CASE("dense_attention: the same bits again") {
  if (!test::with_cuda()) return;
  const Case c{5, 49, 2, 32, 3};
  const auto one = run(c, f32, cuda_device()), two = run(c, f32, cuda_device());
  for (std::size_t k = 0; k < one.size(); ++k) CHECK(bitwise_equal(one[k], two[k]));
}

TEST_CASE("dense_attention: a NaN stays where it can be seen") {
  if (!test::with_cuda()) return;
  Generator rng{4};
  Tensor qkv = randn({2, 70, 3, 1, 4}, f32, rng);
  qkv.mutable_data<float>()[3] = std::nanf("");  // q of token 0 of window 0
  const std::vector<float> y = dense_attention(qkv.to(cuda_device())).to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::isnan(y[i]));
  for (std::size_t i = 4; i < y.size(); ++i) CHECK(std::isfinite(y[i]));
}

}  // namespace lipgrad
