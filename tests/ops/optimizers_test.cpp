#include <lipgrad/ops/optimizers.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/clip_grad.h>
#include <support/data.h>

namespace lipgrad {
namespace {

void fill_zeros(Tensor& x, Generator&) { x = zeros_like(x); }

struct Net : Module {
  Parameter p0{*this, "p0", {4, 3}, fill_zeros, f64};
  Parameter p1{*this, "p1", {3}, fill_zeros, f64};
  Parameter p2{*this, "p2", {2, 2, 2}, fill_zeros, f64};
};

const NpzFile& golden_file() {
  static const NpzFile file(test::golden("optimizers/torch.npz"));
  return file;
}

// Row t of a stored history, or all of an array.
Tensor golden_tensor(const std::string& name, const Shape& shape, std::int64_t t = 0) {
  const NpyArray array = golden_file().read(name);
  const auto values = array.values<double>();
  REQUIRE(static_cast<std::int64_t>(values.size()) >= (t + 1) * shape.numel());
  return from_span<double>(shape, values.subspan(static_cast<std::size_t>(t * shape.numel()),
                                                 static_cast<std::size_t>(shape.numel())));
}

double worst_difference(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    worst = std::max(worst, std::abs(a.data<double>()[i] - b.data<double>()[i]));
  return worst;
}

using Make = std::function<std::unique_ptr<Optimizer>(Module&)>;

void check_trajectory(const std::string& name, const Make& make, bool skip = false) {
  Net net;
  for (auto& [path, parameter] : net.named_parameters())
    parameter->set_value(golden_tensor("start/" + path, parameter->shape()));
  const std::unique_ptr<Optimizer> optimizer = make(net);
  double worst = 0;
  for (int t = 0; t < 12; ++t) {
    const bool without = skip && (t == 2 || t == 3 || t == 7);
    optimizer->zero_grad();
    for (auto& [path, parameter] : net.named_parameters())
      if (!(without && path == "p1"))
        parameter->add_grad(golden_tensor("grads/" + path, parameter->shape(), t));
    optimizer->step();
    CHECK(optimizer->skipped() == (without ? 1 : 0));
    for (auto& [path, parameter] : net.named_parameters())
      worst = std::max(worst,
                       worst_difference(parameter->value(),
                                        golden_tensor(name + "/" + path, parameter->shape(), t)));
    // Gradients are left as they were.
    CHECK(bitwise_equal(net.p0.grad(), golden_tensor("grads/p0", net.p0.shape(), t)));
  }
  CHECK(optimizer->steps() == 12);
  INFO(name, ": worst difference ", worst);
  CHECK(worst < 1e-13);
}

template <class T>
Make made(auto options) {
  return [options](Module& net) { return std::make_unique<T>(net, options); };
}

}  // namespace

TEST_CASE("optimizers: trajectories are those of PyTorch") {
  check_trajectory("sgd", made<Sgd>(SgdOptions{.lr = 0.1}));
  check_trajectory("sgd_decay", made<Sgd>(SgdOptions{.lr = 0.1, .weight_decay = 0.03}));
  check_trajectory("momentum",
                   made<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.03}));
  check_trajectory(
      "nesterov",
      made<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.03}));
  check_trajectory("adam", made<Adam>(AdamOptions{.lr = 0.02}));
  check_trajectory(
      "adam_decay",
      made<Adam>(AdamOptions{
          .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.03}));
  check_trajectory("adamw", made<AdamW>(AdamWOptions{.lr = 0.02, .weight_decay = 0.1}));
  OptimizerGroup vectors = no_decay_on_vectors();
  vectors.lr_factor = 2;
  check_trajectory("adamw_groups",
                   made<AdamW>(AdamWOptions{.lr = 0.02, .weight_decay = 0.1, .groups = {vectors}}));
}

TEST_CASE("optimizers: a parameter without gradient keeps its value and its count of steps") {
  check_trajectory("adam_skip", made<Adam>(AdamOptions{.lr = 0.02, .weight_decay = 0.03}), true);
  check_trajectory("momentum_skip", made<Sgd>(SgdOptions{.lr = 0.05, .momentum = 0.9}), true);
}

TEST_CASE("optimizers: the usage of the README compiles; frozen parameters stay") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  Adam optimizer{net, {.lr = 5e-3, .weight_decay = 5e-4}};
  Sgd sgd{net, {.momentum = 0.9}};
  AdamW adamw{net, {.groups = {no_decay_on_vectors()}}};
  net.p0.set_trainable(false);
  net.p0.add_grad(ones(net.p0.shape(), f64));
  net.p1.add_grad(ones(net.p1.shape(), f64));
  optimizer.step();
  CHECK(bitwise_equal(net.p0.value(), zeros(net.p0.shape(), f64)));
  CHECK(net.p1.value().data<double>()[0] < 0);
  CHECK(optimizer.skipped() == 1);
  optimizer.zero_grad();
  CHECK(!net.p1.grad().defined());
  optimizer.set_lr(0);
  CHECK_THROWS_WITH_AS(optimizer.set_lr(-1), "optimizer: learning rate -1 must be finite and >= 0",
                       Error);
  CHECK_THROWS_AS((Sgd{net, {.nesterov = true}}), Error);
  CHECK_THROWS_AS((Adam{net, {.beta1 = 1.0}}), Error);
  CHECK_THROWS_AS((Adam{net, {.lr = std::nan("")}}), Error);
  CHECK_THROWS_AS((Adam{net, {.weight_decay = -1.0}}), Error);
  CHECK_THROWS_AS((Adam{net, {.groups = {OptimizerGroup{}}}}), Error);
}

TEST_CASE("optimizers: the state follows the module to another dtype") {
  const auto run = [](bool convert) {
    Net net;
    Generator rng{1};
    net.initialize(rng);
    Adam optimizer{net, {.lr = 0.1}};
    for (int t = 0; t < 6; ++t) {
      if (convert && t == 3) net.to(f32);
      net.zero_grad();
      for (Parameter* parameter : net.parameters()) {
        Tensor g = ones(parameter->shape(), f64);
        g.mutable_data<double>()[0] = t - 2.5;
        parameter->add_grad(g.to(parameter->dtype()));
      }
      optimizer.step();
    }
    return net.p0.value().detach().to(f64);
  };
  const Tensor plain = run(false), converted = run(true);
  CHECK(worst_difference(plain, converted) < 1e-6);
  CHECK(worst_difference(plain, converted) > 0);
}

TEST_CASE("optimizers: the same bits for every number of threads") {
  struct Large : Module {
    Parameter a{*this, "a", {100003}, fill_zeros};
    Parameter b{*this, "b", {3, 20000}, fill_zeros};
  };
  const auto run = [](int threads, bool sgd) {
    const int before = num_threads();
    set_num_threads(threads);
    Large net;
    Generator rng{5};
    net.initialize(rng);
    std::unique_ptr<Optimizer> optimizer;
    if (sgd)
      optimizer = std::make_unique<Sgd>(net, SgdOptions{.momentum = 0.9, .nesterov = true});
    else
      optimizer = std::make_unique<Adam>(net, AdamOptions{.weight_decay = 0.1});
    for (int t = 0; t < 3; ++t) {
      net.zero_grad();
      for (Parameter* parameter : net.parameters())
        parameter->add_grad(randn(parameter->shape(), f32, rng));
      clip_grad_norm(net, 10);
      optimizer->step();
    }
    set_num_threads(before);
    return std::pair(net.a.value().detach(), net.b.value().detach());
  };
  for (const bool sgd : {false, true}) {
    const auto one = run(1, sgd);
    for (const int threads : {2, 3}) {
      const auto many = run(threads, sgd);
      CHECK(bitwise_equal(one.first, many.first));
      CHECK(bitwise_equal(one.second, many.second));
    }
  }
}

TEST_CASE("optimizers: state goes over to a fresh optimiser; what does not fit is named") {
  Net net, other;
  Generator rng{1};
  net.initialize(rng);
  other.initialize(rng);
  Adam a{net, {.lr = 0.1}}, b{other, {.lr = 0.2}};
  const auto step = [](Net& n, Optimizer& optimizer, double value) {
    n.zero_grad();
    n.p0.add_grad(full(n.p0.shape(), value, f64));
    n.p2.add_grad(full(n.p2.shape(), -value, f64));
    optimizer.step();
  };
  step(net, a, 1);
  step(net, a, 2);
  CHECK(a.skipped() == 1);
  b.load_state(a.state());
  CHECK(b.lr() == 0.1);
  CHECK(b.steps() == 2);
  other.p0.set_value(net.p0.value());
  other.p2.set_value(net.p2.value());
  step(net, a, 3);
  step(other, b, 3);
  CHECK(bitwise_equal(net.p0.value(), other.p0.value()));
  CHECK(bitwise_equal(net.p2.value(), other.p2.value()));

  OptimizerState bad = a.state();
  bad.tensors.erase("p0/v");
  bad.tensors["p2/m"] = zeros({3}, f64);
  bad.tensors["q/steps"] = zeros({}, i64);
  bad.values.erase("lr");
  CHECK_THROWS_WITH_AS(
      b.load_state(bad),
      "adam: the state does not fit: no valid learning rate; missing p0/v; p2/m is "
      "f64 (3), expected f64 (2, 2, 2); 1 tensors of no parameter of this model",
      Error);
  CHECK_THROWS_WITH_AS((AdamW{net}.load_state(a.state())),
                       "adamw: the state does not fit: state of adam, the optimiser is adamw",
                       Error);
}

TEST_CASE("clip_grad: norm and value") {
  Net net;
  Generator rng{1};
  net.initialize(rng);
  CHECK(clip_grad_norm(net, 1) == 0);
  CHECK(grad_norm(net) == 0);
  CHECK(grad_norms(net).parameters.empty());
  const auto set = [&] {
    net.zero_grad();
    for (auto& [path, parameter] : net.named_parameters())
      parameter->add_grad(golden_tensor("grads/" + path, parameter->shape()));
  };
  set();
  const double expected = golden_file().read("clip/norm").values<double>()[0];
  const GradNorms norms = grad_norms(net);
  CHECK(std::abs(norms.total - expected) < 1e-14 * expected);
  CHECK(grad_norm(net) == norms.total);
  REQUIRE(norms.parameters.size() == net.parameters().size());
  const auto named = net.named_parameters();
  for (std::size_t i = 0; i < norms.parameters.size(); ++i) {
    const auto& [path, parameter] = named[i];
    CHECK(norms.parameters[i].first == path);
    double squares = 0;
    for (std::int64_t j = 0; j < parameter->numel(); ++j)
      squares += std::pow(parameter->grad().data<double>()[j], 2);
    CHECK(std::abs(norms.parameters[i].second - std::sqrt(squares)) < 1e-14 * expected);
  }
  CHECK(std::abs(clip_grad_norm(net, 1.5) - expected) < 1e-14 * expected);
  for (auto& [path, parameter] : net.named_parameters())
    CHECK(worst_difference(parameter->grad(), golden_tensor("clip/" + path, parameter->shape())) <
          1e-15);
  CHECK(std::abs(clip_grad_norm(net, 2) - 1.5) < 1e-6);  // below: nothing to do
  net.p1.mutable_grad().mutable_data<double>()[0] = std::nan("");
  const Tensor before = net.p0.grad().clone();
  CHECK(std::isnan(clip_grad_norm(net, 0.1)));
  CHECK(bitwise_equal(before, net.p0.grad()));
  set();
  clip_grad_value(net, 0.5);
  const Tensor g = golden_tensor("grads/p0", net.p0.shape());
  for (std::int64_t i = 0; i < g.numel(); ++i)
    CHECK(net.p0.grad().data<double>()[i] == std::clamp(g.data<double>()[i], -0.5, 0.5));
  CHECK_THROWS_AS(clip_grad_norm(net, 0), Error);
  CHECK_THROWS_AS(clip_grad_value(net, std::nan("")), Error);
}

}  // namespace lipgrad
