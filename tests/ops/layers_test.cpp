#include <lipgrad/ops/layers.h>

#include <doctest/doctest.h>

#include <cmath>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/init.h>

namespace lipgrad {
namespace {

struct Net : Module {
  Linear fc{*this, "fc", 3, 2};
  Linear bare{*this, "bare", 2, 2, {.bias = false, .weight_initializer = init::constant(0.5)}};
  LayerNorm norm{*this, "norm", 2};
  LayerNorm plain{*this, "plain", 2, {.affine = false}};
  Dropout drop{*this, "drop", 0.5};
  Embedding words{*this, "words", 5, 4};
  Sequential rest{*this, "rest"};

  Net() {
    rest.emplace_back<Linear>(2, 8);
    rest.then(relu);
    rest.emplace_back<Dropout>(0.5);
    rest.emplace_back<Linear>(8, 1, LinearLayerOptions{.activation = Activation::tanh});
  }
};

}  // namespace

TEST_CASE("layers: parameters, names and initial values") {
  Net net;
  std::string names;
  for (const auto& [name, parameter] : net.named_parameters())
    names += name + parameter->shape().str() + " ";
  CHECK(names ==
        "fc.weight(2, 3) fc.bias(2) bare.weight(2, 2) norm.weight(2) norm.bias(2) "
        "words.weight(5, 4) rest.0.weight(8, 2) rest.0.bias(8) rest.3.weight(1, 8) "
        "rest.3.bias(1) ");
  CHECK_THROWS_AS(net.fc.forward(zeros({1, 3})), Error);  // not initialised yet
  Generator rng{1};
  net.initialize(rng);
  CHECK(rng.next_draw() == 5 + 2);  // the weights that are drawn, and fc's and rest's biases
  for (const Parameter* p : {&net.fc.weight, &*net.fc.bias})
    for (float value : p->value().to_vector<float>()) CHECK(std::abs(value) <= 1 / std::sqrt(3.0));
  CHECK(net.norm.weight->value().to_vector<float>() == std::vector<float>{1, 1});
  CHECK(net.norm.bias->value().to_vector<float>() == std::vector<float>{0, 0});
  CHECK(net.bare.weight.value().to_vector<float>() == std::vector<float>(4, 0.5f));
  CHECK(!net.bare.bias);
}

TEST_CASE("layers: values, dense and sparse") {
  Net net;
  Generator rng{2};
  net.initialize(rng);
  const Tensor x = from_values<float>({2, 3}, {1, 0, 2, 0, 0, -1});
  const Tensor y = net.fc.forward(x);
  const auto w = net.fc.weight.value().to_vector<float>();
  const auto b = net.fc.bias->value().to_vector<float>();
  CHECK(y.data<float>()[0] == doctest::Approx(w[0] + 2 * w[2] + b[0]));
  CHECK(y.data<float>()[3] == doctest::Approx(-w[5] + b[1]));
  const Tensor z = net.fc.forward(CsrMatrix::from_dense(x));
  for (int i = 0; i < 4; ++i) CHECK(z.data<float>()[i] == doctest::Approx(y.data<float>()[i]));

  const Tensor n = net.norm.forward(from_values<float>({1, 2}, {1, 3}));
  CHECK(n.data<float>()[0] == doctest::Approx(-1).epsilon(1e-4));
  CHECK(bitwise_equal(net.plain.forward(from_values<float>({1, 2}, {1, 3})), n));

  const Tensor words = net.words.forward(from_values<std::int64_t>({2, 1}, {4, 0}));
  REQUIRE(words.shape() == Shape{2, 1, 4});
  CHECK(words.data<float>()[5] == net.words.weight.value().data<float>()[1]);

  CHECK(bitwise_equal(net.drop.forward(x, Mode::eval()), x));
  const Tensor dropped = net.drop.forward(ones({1000}), Mode::train(rng));
  for (float value : dropped.to_vector<float>()) CHECK((value == 0 || value == 2));
}

TEST_CASE("Sequential runs its stages in order, and passes the mode on") {
  Net net;
  Generator rng{3};
  net.initialize(rng);
  CHECK(net.rest.size() == 4);
  const Tensor x = randn({5, 2}, f32, rng);
  const auto named = net.named_parameters();
  const auto value = [&](const char* name) {
    for (const auto& [path, parameter] : named)
      if (path == name) return parameter->value();
    return Tensor();
  };
  const Tensor hidden = relu(linear(x, value("rest.0.weight"), value("rest.0.bias")));
  const Tensor expected =
      linear(hidden, value("rest.3.weight"), value("rest.3.bias"), {Activation::tanh});
  CHECK(bitwise_equal(net.rest.forward(x, Mode::eval()), expected));
  CHECK(!bitwise_equal(net.rest.forward(x, Mode::train(rng)), expected));

  Tape tape;
  const Tensor y = net.rest.forward(x, Mode::train(rng));
  CHECK(tape.dump().find("rest.3") != std::string::npos);
  tape.backward(y, ones({5, 1}));
  CHECK(net.fc.weight.grad().defined() == false);
  for (const auto& [path, parameter] : named)
    if (path.rfind("rest.", 0) == 0) CHECK(parameter->grad().shape() == parameter->shape());
}

TEST_CASE("layers: errors") {
  Module root;
  CHECK_THROWS_WITH_AS(Linear(root, "a", 0, 2), "Linear: in must be at least 1, got 0", Error);
  CHECK_THROWS_WITH_AS(Embedding(root, "b", 3, -1),
                       "Embedding: features must be at least 1, got -1", Error);
  CHECK_THROWS_WITH_AS(Dropout(root, "c", 1.5), "Dropout: p must be from 0 to 1, got 1.5", Error);
  CHECK_THROWS_AS(LayerNorm(root, "d", 2, {.eps = -1}), Error);
  LayerNorm norm(root, "e", 4, {.affine = false});
  CHECK_THROWS_WITH_AS(norm.forward(zeros({2, 3})),
                       "LayerNorm: made for rows of 4 features, got (2, 3)", Error);
  Sequential rest(root, "f");
  CHECK_THROWS_AS(rest.then(nullptr), Error);
  CHECK(rest.forward(ones({2}), Mode::eval()).numel() == 2);
}

}  // namespace lipgrad
