#include <lipgrad/vision/cross_shaped_attention.h>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/shape.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

MultiHeadAttentionOptions options() {
  MultiHeadAttentionOptions o{.dim = 8, .heads = 4, .dtype = f64};
  o.bias_initializer = init::normal(0, 1);
  return o;
}

struct Net : Module {
  Net(const MultiHeadAttentionOptions& o, const CrossShape& shape) : attention(*this, o, shape) {
    Generator rng{3};
    initialize(rng);
  }
  CrossShapedAttention attention;
};

}  // namespace

TEST_CASE("CrossShapedAttention: the result of a token has gradients in its cross alone") {
  const std::int64_t height = 4, width = 6, row = 1, column = 3;
  for (const std::int64_t split : {1, 2, 0}) {
    CAPTURE(split);
    const Net net(options(), {height, width, split});
    Generator rng{5};
    Tape tape;
    const Tensor x = tape.watch(randn({1, height, width, 8}, f64, rng));
    const Tensor y = slice(slice(net.attention.forward(x, Mode::eval()), 1, row, row + 1), 2,
                           column, column + 1);
    const std::vector<double> g =
        tape.grad(y, {x}, randn(y.shape(), f64, rng))[0].to_vector<double>();
    for (std::int64_t i = 0; i < height; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        CAPTURE(i);
        CAPTURE(j);
        const bool in = split == 0 || i / split == row / split || j / split == column / split;
        for (std::int64_t c = 0; c < 8; ++c) CHECK((g[(i * width + j) * 8 + c] != 0) == in);
      }
  }
}

TEST_CASE("CrossShapedAttention: parameters are the owner's, by their published names") {
  MultiHeadAttentionOptions o = options();
  o.qkv_bias = QkvBias::queries_and_values;
  o.learn_nu = Learned::each_head;
  const Net net(o, {2, 2, 1});
  std::vector<std::string> names;
  for (const auto& [path, parameter] : net.named_parameters()) names.push_back(path);
  CHECK(names == std::vector<std::string>{"qkv.weight", "q_bias", "v_bias", "attns.0.nu",
                                          "attns.0.get_v.weight", "attns.0.get_v.bias",
                                          "attns.1.nu", "attns.1.get_v.weight",
                                          "attns.1.get_v.bias", "proj.weight", "proj.bias"});
  CHECK(net.attention.attns[1].nu->shape() == Shape{2});
}

TEST_CASE("LepeAttention: nu multiplies attention and LePE, fixed or learned, or over heads") {
  Generator rng{5};
  const Tensor qkv = randn({3, 6, 24}, f64, rng);
  const auto result = [&](const MultiHeadAttentionOptions& o) {
    Module root;
    const LepeAttention layer(root, "a", o, {2, 3});
    Generator same{7};
    root.initialize(same);
    return layer.forward(qkv, Mode::eval());
  };
  MultiHeadAttentionOptions o = options();
  const Tensor plain = result(o);
  o.attention.nu = 0.6;
  const Tensor expected = mul(plain, 0.6);
  CHECK(distance(result(o), expected) <= 1e-14);
  for (const Learned learned : {Learned::one, Learned::each_head}) {
    o.learn_nu = learned;
    CHECK(distance(result(o), expected) <= 1e-14);
    o.nu_over_heads = true;
    CHECK(distance(result(o), mul(expected, 0.5)) <= 1e-14);
    o.nu_over_heads = false;
  }
  o = options();
  o.nu_over_heads = true;
  CHECK(distance(result(o), mul(plain, 0.5)) <= 1e-14);
}

TEST_CASE("CrossShapedAttention names what does not fit") {
  const auto fails = [](const MultiHeadAttentionOptions& o, const CrossShape& shape) {
    const Net net(o, shape);
  };
  MultiHeadAttentionOptions o = options();
  CHECK_THROWS_WITH_AS(fails(o, {4, 6, 4}),
                       "CrossShapedAttention: stripes of 4 tokens do not divide a map of 4 x 6",
                       Error);
  CHECK_THROWS_WITH_AS(fails(o, {4, 6, -1}),
                       "CrossShapedAttention: a map of 4 x 6 tokens, stripes of -1", Error);
  o.heads = 1;
  CHECK_THROWS_WITH_AS(fails(o, {4, 6, 2}), "CrossShapedAttention: 1 heads cannot be halved",
                       Error);
  const Net net(options(), {4, 6, 2});
  CHECK_THROWS_WITH_AS(net.attention.forward(zeros({2, 6, 4, 8}, f64), Mode::eval()),
                       "CrossShapedAttention: x must be (B, 4, 6, 8), got (2, 6, 4, 8)", Error);
  CHECK_THROWS_WITH_AS(net.attention.attns[0].forward(zeros({2, 8, 24}, f64), Mode::eval()),
                       "LepeAttention: qkv must be (windows, 8, 12), got (2, 8, 24)", Error);
}

}  // namespace lipgrad
