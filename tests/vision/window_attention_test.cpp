#include <lipgrad/vision/window_attention.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/matmul.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/vision/relative_position.h>
#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

struct Net : Module {
  explicit Net(const MultiHeadAttentionOptions& options, const AttentionWindow& window = {4, 4})
      : attention(*this, "attn", options, window) {}
  WindowAttention attention;
};

// Labels of the tokens of each window: a token's is the first that it sees.
Tensor labels_of(const Tensor& mask) {
  const std::int64_t windows = mask.size(0), tokens = mask.size(1);
  std::vector<std::int32_t> label;
  for (std::int64_t row = 0; row < windows * tokens; ++row) {
    std::int32_t first = 0;
    while (mask.data<double>()[row * tokens + first] != 0) ++first;
    label.push_back(first);
  }
  return from_vector({windows, tokens}, label);
}

DenseAttentionOptions cosine(double tau) {
  DenseAttentionOptions options;
  options.score = AttentionScore::cosine;
  options.tau = tau;
  return options;
}

}  // namespace

TEST_CASE("WindowAttention: values and gradients of the published code of Swin and LipsFormer") {
  for (const std::string name : {"swin", "lips"})
    for (const std::string kind : {"plain", "masked"}) {
      CAPTURE(name);
      CAPTURE(kind);
      const auto golden =
          load_npz(test::golden("lipsformer/" + name + "_window_attn_" + kind + ".npz"));
      MultiHeadAttentionOptions options{.dim = 16, .heads = 2, .dtype = f64};
      if (name == "lips") options.attention = cosine(10);
      Net net(options);
      for (const auto& [path, parameter] : net.attention.named_parameters())
        parameter->set_value(golden.at("w." + path));
      Tape tape;
      const Tensor x = tape.watch(golden.at("in.x"));
      const Tensor regions = kind == "masked" ? labels_of(golden.at("in.mask")) : Tensor();
      const Tensor y = net.attention.forward(x, regions, Mode::eval());
      CHECK(distance(y, golden.at("out.y")) <= 1e-12);
      CHECK(distance(tape.grad(y, {x}, golden.at("rand.r"), {.retain = true})[0],
                     golden.at("gin.x")) <= 1e-10);
      tape.backward(y, golden.at("rand.r"));
      CHECK(net.attention.parameters().size() == 5);
      for (const auto& [path, parameter] : net.attention.named_parameters()) {
        CAPTURE(path);
        CHECK(distance(parameter->grad(), golden.at("gw." + path)) <= 1e-10);
      }
    }
}

TEST_CASE("dense_attention: scaled cosine similarity attention as LipsFormer's paper has it") {
  const auto golden = load_npz(test::golden("lipsformer/scsa_paper_1head.npz"));
  DenseAttentionOptions options;
  options.heads = 1;
  options.score = AttentionScore::cosine;
  options.normalise_v = true;
  options.eps_mode = LengthEps::inside_root;
  options.eps = golden.at("hp.eps").item();
  const auto attention = [&](const Tensor& x, const std::vector<Tensor>& w) {
    const Tensor qkv = concat({matmul(x, w[0]), matmul(x, w[1]), matmul(x, w[2])}, 2);
    return dense_attention(qkv, options, {.tau = w[3], .nu = w[4]});
  };
  const char* names[] = {"wq", "wk", "wv", "tau", "nu"};
  {
    Tape tape;
    const Tensor x = tape.watch(golden.at("in.x"));
    std::vector<Tensor> w;
    for (const std::string name : names) w.push_back(tape.watch(golden.at("w." + name)));
    const Tensor y = attention(x, w);
    CHECK(distance(y, golden.at("out.y")) <= 1e-12);
    CHECK(distance(tape.grad(y, {x}, golden.at("rand.r"), {.retain = true})[0],
                   golden.at("gin.x")) <= 1e-10);
    const auto grads = tape.grad(y, w, golden.at("rand.r"));
    for (std::size_t i = 0; i < w.size(); ++i) {
      CAPTURE(names[i]);
      CHECK(distance(grads[i], golden.at("gw." + std::string(names[i]))) <= 1e-10);
    }
  }
  // Its Jacobian at t x, and the bound nu eps^-1/2 (tau |W_q| + sqrt(N) (tau |W_k| + |W_v|)).
  std::vector<Tensor> w;
  std::vector<double> norm;
  for (const std::string name : names) {
    w.push_back(golden.at("w." + name));
    if (w.back().rank() == 2)
      norm.push_back(
          largest_singular_value(w.back().size(0), w.back().size(1), w.back().data<double>()));
  }
  const double tau = w[3].item(), nu = w[4].item();
  const double bound =
      nu / std::sqrt(options.eps) * (tau * norm[0] + std::sqrt(6.0) * (tau * norm[1] + norm[2]));
  const Tensor& rows = golden.at("out.jacobian_norms");
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const double* of = rows.data<double>() + row * 4;
    const auto sample = static_cast<std::int64_t>(of[1]);
    const Tensor x = mul(slice(golden.at("in.x"), 0, sample, sample + 1), of[0]);
    const Tensor j = test::jacobian(x, [&](const Tensor& at) { return attention(at, w); });
    const double measured = largest_singular_value(j.size(0), j.size(1), j.data<double>());
    CHECK(measured == doctest::Approx(of[2]).epsilon(1e-8));
    CHECK(measured <= bound);
  }
}

TEST_CASE("relative_position_bias: the rows that Swin's index names") {
  // 2 x 3: from the last token to the first the offset is (1, 2), the last row.
  std::vector<double> table;
  for (int row = 0; row < 15; ++row) table.insert(table.end(), {double(row), -double(row)});
  const Tensor bias = relative_position_bias(from_vector({15, 2}, table), 2, 3);
  CHECK(bias.shape() == Shape({2, 6, 6}));
  const auto at = [&](int h, int a, int b) { return bias.data<double>()[(h * 6 + a) * 6 + b]; };
  CHECK(at(0, 5, 0) == 14);
  CHECK(at(1, 0, 5) == 0);
  for (int a = 0; a < 6; ++a) CHECK(at(0, a, a) == 7);
  CHECK(at(0, 1, 0) == 8);
  CHECK(at(0, 0, 3) == 2);
  CHECK(at(1, 3, 2) == -(1 * 5 + 5 + 0 - 2 + 2));
  CHECK_THROWS_WITH_AS(
      relative_position_bias(ones({14, 2}), 2, 3),
      "relative_position_bias: the table of a 2 x 3 window must be (15, heads), got (14, 2)",
      Error);
}

TEST_CASE("relative_position_coordinates are Swin-V2's") {
  const Tensor at = relative_position_coordinates(3, 1, f64);
  CHECK(at.shape() == Shape({5, 2}));
  const std::vector<double> v = at.to_vector<double>();
  CHECK(v[0] == doctest::Approx(-std::log2(9.0) / 3));
  CHECK(v[2] == doctest::Approx(-std::log2(5.0) / 3));
  CHECK(v[4] == 0);
  CHECK(v[8] == doctest::Approx(std::log2(9.0) / 3));
  for (std::size_t row = 0; row < 5; ++row) CHECK(v[2 * row + 1] == 0);
}

TEST_CASE("WindowAttention: Swin-V2's form") {
  MultiHeadAttentionOptions options{.dim = 8, .heads = 2};
  options.attention = cosine(10);
  options.learn_tau = Learned::each_head;
  options.tau_ceiling = 100;
  options.qkv_bias = QkvBias::queries_and_values;
  options.dtype = f64;
  Net net(options, {2, 3, PositionBias::continuous});
  Generator rng{3};
  net.initialize(rng);
  std::vector<std::string> names;
  for (const auto& [path, parameter] : net.named_parameters()) names.push_back(path);
  CHECK(names == std::vector<std::string>{"attn.logit_scale", "attn.qkv.weight", "attn.q_bias",
                                          "attn.v_bias", "attn.proj.weight", "attn.proj.bias",
                                          "attn.cpb_mlp.0.weight", "attn.cpb_mlp.0.bias",
                                          "attn.cpb_mlp.2.weight", "attn.relative_coords_table"});
  CHECK(net.attention.logit_scale->value().to_vector<double>()[1] ==
        doctest::Approx(std::log(10.0)));
  const Tensor x = randn({2, 6, 8}, f64, rng);
  const Tensor before = net.attention.forward(x, {}, Mode::eval());
  // Beyond the ceiling nothing changes, and theta has no gradient.
  net.attention.logit_scale->set_value(full({2}, std::log(100.0), f64));
  const Tensor at_ceiling = net.attention.forward(x, {}, Mode::eval());
  net.attention.logit_scale->set_value(full({2}, 6, f64));
  Tape tape;
  const Tensor above = net.attention.forward(x, {}, Mode::eval());
  CHECK(distance(above, at_ceiling) <= 1e-14);
  CHECK(distance(above, before) > 1e-3);
  tape.backward(sum(above));
  for (const double g : net.attention.logit_scale->grad().to_vector<double>()) CHECK(g == 0);
  CHECK_FALSE(net.attention.parameters().back()->grad().defined());  // the offsets
}

TEST_CASE("Attention layers: values and gradients of Swin-V2's formula and of QK-norm") {
  const auto check = [](auto& layer, const std::map<std::string, Tensor>& golden, auto&& forward) {
    for (const auto& [path, parameter] : layer.named_parameters()) {
      if (parameter->trainable()) {
        parameter->set_value(golden.at("w." + path));
      } else {
        Generator unused;
        parameter->initialize(unused);
      }
    }
    Tape tape;
    const Tensor x = tape.watch(golden.at("in.x"));
    const Tensor y = forward(x);
    CHECK(distance(y, golden.at("out.y")) <= 1e-12);
    CHECK(distance(tape.grad(y, {x}, golden.at("rand.r"), {.retain = true})[0],
                   golden.at("gin.x")) <= 1e-10);
    tape.backward(y, golden.at("rand.r"));
    for (const auto& [path, parameter] : layer.named_parameters()) {
      CAPTURE(path);
      if (parameter->trainable())
        CHECK(distance(parameter->grad(), golden.at("gw." + path)) <= 1e-10);
    }
  };
  Module root;
  MultiHeadAttentionOptions second{.dim = 8, .heads = 2, .dtype = f64};
  second.attention = cosine(10);
  second.learn_tau = Learned::each_head;
  second.tau_ceiling = 100;
  second.qkv_bias = QkvBias::queries_and_values;
  WindowAttention windows(root, "windows", second, {2, 3, PositionBias::continuous});
  check(windows, load_npz(test::golden("window_attention/swin_v2.npz")),
        [&](const Tensor& x) { return windows.forward(x, {}, Mode::eval()); });
  MultiHeadAttention normed(root, "normed", {.dim = 12, .heads = 3, .qk_norm = true, .dtype = f64});
  check(normed, load_npz(test::golden("window_attention/qk_norm.npz")),
        [&](const Tensor& x) { return normed.forward(x, Mode::eval()); });
}

TEST_CASE("MultiHeadAttention: learned tau and nu, norms of queries and keys") {
  struct Layer : Module {
    explicit Layer(const MultiHeadAttentionOptions& options) : attention(*this, "a", options) {}
    MultiHeadAttention attention;
  };
  Generator rng{3};
  const Tensor x = randn({2, 5, 12}, f64, rng);
  MultiHeadAttentionOptions options{.dim = 12, .heads = 3, .dtype = f64};
  Layer plain(options);
  Generator same{9};
  plain.initialize(same);
  options.learn_tau = options.learn_nu = Learned::each_head;
  Layer learned(options);
  learned.initialize(same = Generator{9});
  CHECK(learned.attention.tau->value().to_vector<double>()[2] == 0.5);
  CHECK(distance(learned.attention.forward(x, Mode::eval()),
                 plain.attention.forward(x, Mode::eval())) <= 1e-14);
  options.qk_norm = true;
  Layer normed(options);
  normed.initialize(same = Generator{9});
  // With normed queries and keys their projections may grow without a change.
  const Tensor y = normed.attention.forward(x, Mode::eval());
  Tensor weight = normed.attention.qkv.weight.value().clone(),
         bias = normed.attention.qkv.bias->value().clone();
  for (std::int64_t i = 0; i < 24 * 12; ++i) weight.mutable_data<double>()[i] *= 1e3;
  for (std::int64_t i = 0; i < 24; ++i) bias.mutable_data<double>()[i] *= 1e3;
  normed.attention.qkv.weight.set_value(weight);
  normed.attention.qkv.bias->set_value(bias);
  CHECK(distance(normed.attention.forward(x, Mode::eval()), y) <= 1e-3);
  CHECK(distance(plain.attention.forward(x, Mode::eval()), y) > 1e-2);
}

TEST_CASE("attention layers: errors say what was given") {
  Module root;
  CHECK_THROWS_WITH_AS(
      MultiHeadAttention(root, "a", {.dim = 10, .heads = 3}),
      "MultiHeadAttention: dim must be a multiple of heads, both at least 1, got 10 and 3", Error);
  CHECK_THROWS_WITH_AS(MultiHeadAttention(root, "a", {.dim = 8, .heads = 2, .tau_ceiling = 100}),
                       "MultiHeadAttention: tau_ceiling is of a learned tau", Error);
  WindowAttention attention(root, "w", {.dim = 8, .heads = 2}, {2, 3});
  CHECK_THROWS_WITH_AS(attention.forward(ones({1, 5, 8}), {}, Mode::eval()),
                       "WindowAttention: x must be (windows, 6, C), got (1, 5, 8)", Error);
  CHECK_THROWS_AS(WindowAttention(root, "v", {.dim = 8, .heads = 2}, {0, 3}), Error);
}

}  // namespace lipgrad
