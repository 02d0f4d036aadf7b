#include <lipgrad/core/module.h>

#include <doctest/doctest.h>

#include <optional>
#include <type_traits>

#include <lipgrad/core/error.h>

#include "support/ops.h"

namespace lipgrad {
namespace {

using namespace testing;

Initializer constant(double value) {
  return [value](Tensor& x, Generator&) { copy_into(x, full(x.shape(), value, x.dtype())); };
}

struct Layer : Module {
  Layer(Module& parent, std::string name, double value)
      : Module(parent, std::move(name)), value(value) {}
  double value;
  Parameter weight{*this, "weight", {2, 2}, constant(value)};
  Parameter bias{*this, "bias", {2}, constant(-value)};
  Buffer mean{*this, "mean", {2}, 0.5};
};

struct Net : Module {
  Layer first{*this, "first", 1};
  std::optional<Layer> second;
  ModuleList<Layer> rest{*this, "rest"};
  Parameter scale{*this, "scale", {}, constant(3)};
};

static_assert(!std::is_copy_constructible_v<Module> && !std::is_move_constructible_v<Module>);
static_assert(!std::is_copy_constructible_v<Parameter> &&
              !std::is_assignable_v<Parameter&, Tensor>);

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> found;
  for (const auto& [name, parameter] : module.named_parameters()) found.push_back(name);
  return found;
}

TEST_CASE("members register in order, with their paths") {
  Net net;
  net.rest.emplace_back(5.0);
  net.rest.emplace_back(6.0);
  net.second.emplace(net, "second", 2);
  CHECK(names(net) == std::vector<std::string>{"first.weight", "first.bias", "rest.0.weight",
                                               "rest.0.bias", "rest.1.weight", "rest.1.bias",
                                               "scale", "second.weight", "second.bias"});
  CHECK(names(net.rest) == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"});
  CHECK(net.rest[1].path() == "rest.1");
  CHECK(net.rest[1].weight.path() == "rest.1.weight");
  CHECK(net.named_buffers().size() == 4);
  CHECK(net.num_parameters() == 4 * 6 + 1);
  net.second.reset();
  CHECK(names(net).size() == 7);
  CHECK_THROWS_WITH_AS(Layer(net, "first", 1), "module '': two members are named 'first'", Error);
  CHECK_THROWS_AS(Layer(net, "a.b", 1), Error);
  CHECK_THROWS_AS(Layer(net, "", 1), Error);
  CHECK(names(net).size() == 7);  // a failed construction leaves nothing behind
}

TEST_CASE("initialize runs every initialiser; set_value copies") {
  Net net;
  net.rest.emplace_back(5.0);
  CHECK_THROWS_WITH_AS(net.rest[0].weight.value(),
                       "parameter 'rest.0.weight' (2, 2) has no value: call initialize() on the "
                       "model or load a checkpoint",
                       Error);
  Generator rng{1};
  net.initialize(rng);
  CHECK(net.rest[0].bias.value().to_vector<float>() == std::vector<float>{-5, -5});
  net.first.mean.mutable_data<float>()[0] = 9;
  net.initialize(rng);
  CHECK(net.first.mean.value().to_vector<float>() == std::vector<float>{0.5, 0.5});
  Tensor given = from_values<float>({2}, {1, 2});
  net.first.bias.set_value(given);
  given.mutable_data<float>()[0] = 7;
  CHECK(net.first.bias.value().to_vector<float>() == std::vector<float>{1, 2});
  CHECK_THROWS_WITH_AS(
      net.first.bias.set_value(full({3}, 1)),
      doctest::Contains("parameter 'first.bias': expects f32 (2), got Tensor(f32, (3), cpu)"),
      Error);
}

TEST_CASE("to(dtype) converts values, gradients and buffers, and keeps parameters leaves") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  net.first.bias.add_grad(from_values<float>({2}, {1, 2}));
  net.to(f64);
  CHECK(net.first.bias.value().dtype() == f64);
  CHECK(net.first.bias.grad().to_vector<double>() == std::vector<double>{1, 2});
  CHECK(net.first.mean.dtype() == f64);
  Tape tape;
  const Tensor old = net.first.bias;
  tape.backward(total(product(old, old)));
  CHECK(net.first.bias.grad().to_vector<double>() == std::vector<double>{-1, 0});
  const Tensor y = total(product(net.first.bias, net.first.bias));
  net.to(f32);
  CHECK_THROWS_WITH_AS(tape.backward(y), doctest::Contains("was destroyed, or moved by to()"),
                       Error);
  CHECK_THROWS_AS(net.to(i32), Error);
}

TEST_CASE("a gradient is the parameter's own") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  net.to(f64);
  Tape tape;
  Parameter& a = net.first.bias;
  const Tensor x = tape.watch(from_values<double>({2}, {1, 1}));
  // Both get the same gradient tensor from the op; changing one's must not change the other's.
  struct Other : Module {
    Parameter p{*this, "p", {2}, constant(1), f64};
  } other;
  other.initialize(rng);
  tape.backward(total(add2(a, other.p)));
  a.mutable_grad().mutable_data<double>()[0] = 100;
  CHECK(other.p.grad().to_vector<double>() == std::vector<double>{1, 1});
}

}  // namespace
}  // namespace lipgrad
