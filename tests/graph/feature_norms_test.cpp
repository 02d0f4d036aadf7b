#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/feature_norm.h>
#include <lipgrad/graph/node_norm.h>
#include <lipgrad/ops/batch_norm.h>

#include <support/data.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

using test::distance;

Tensor golden(const std::string& name) {
  static const NpzFile file(test::golden("feature_norms/pyg.npz"));
  return to_tensor(file.read(name));
}

// Compares a layer with PyTorch's: forward(x) or forward(x, entering), its parameters by name.
template <class Forward>
void check_golden(const std::string& name, Module& layer, Forward forward, bool entering = false) {
  CAPTURE(name);
  for (auto& [path, parameter] : layer.named_parameters())
    parameter->set_value(golden(name + "/" + path));
  Tape tape;
  std::vector<Tensor> wanted{tape.watch(golden("x"))};
  std::vector<std::string> names{"x"};
  Tensor out;
  if (entering) {
    wanted.push_back(tape.watch(golden("h")));
    names.push_back("h");
    out = forward(wanted[0], wanted[1]);
  } else {
    out = forward(wanted[0], Tensor());
  }
  CHECK(distance(out, golden(name + "/out")) < 1e-12);
  for (auto& [path, parameter] : layer.named_parameters()) {
    wanted.push_back(parameter->value());
    names.push_back(path);
  }
  const auto grads = tape.grad(out, wanted, golden("r"));
  for (std::size_t i = 0; i < grads.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(distance(grads[i], golden(name + "/grad." + names[i])) < 1e-10);
  }
}

}  // namespace

TEST_CASE("BatchNorm: PyTorch's values, gradients and running moments") {
  Module root;
  BatchNorm norm(root, "norm", 7, {.dtype = f64});
  Generator rng{1};
  root.initialize(rng);
  check_golden("batch_norm_train", norm,
               [&](const Tensor& x, const Tensor&) { return norm.forward(x, Mode::train(rng)); });
  const auto check_buffers = [&](const std::string& name) {
    CHECK(distance(norm.running_mean, golden(name + "/after.running_mean")) < 1e-14);
    CHECK(distance(norm.running_var, golden(name + "/after.running_var")) < 1e-14);
  };
  check_buffers("batch_norm_train");
  check_golden("batch_norm_eval", norm,
               [&](const Tensor& x, const Tensor&) { return norm.forward(x, Mode::eval()); });
  check_buffers("batch_norm_eval");
}

TEST_CASE("GraphNorm: PyTorch Geometric's, for one graph and for a batch of them") {
  Module root;
  GraphNorm norm(root, "norm", 7, {.dtype = f64});
  check_golden("graph_norm", norm, [&](const Tensor& x, const Tensor&) { return norm.forward(x); });
  const auto chain = [](std::int64_t nodes) {
    return Graph(nodes, from_values<std::int64_t>({1, 2}, {0, nodes - 1}));
  };
  const Graph graphs[] = {chain(5), chain(12), chain(6)};
  const Graph batch = Graph::batch(graphs);
  check_golden("graph_norm_batch", norm,
               [&](const Tensor& x, const Tensor&) { return norm.forward(batch, x); });
  CHECK_THROWS_WITH_AS(norm.forward(batch, ones({4, 7}, f64)),
                       "GraphNorm: a graph of 23 nodes, features (4, 7)", Error);
  CHECK_THROWS_WITH_AS(norm.forward(ones({4, 6}, f64)),
                       "GraphNorm: made for nodes of 7 features, got (4, 6)", Error);
  CHECK_THROWS_AS(GraphNorm(root, "other", 0), Error);
}

TEST_CASE("DiffGroupNorm, MessageNorm, MeanNorm: PyTorch Geometric's; NodeNorm: its formula") {
  Module root;
  Generator rng{1};
  DiffGroupNorm groups(root, "groups", 7, {.groups = 3, .lambda = 0.3, .dtype = f64});
  root.initialize(rng);
  check_golden("group_norm", groups,
               [&](const Tensor& x, const Tensor&) { return groups.forward(x, Mode::train(rng)); });
  CHECK(distance(groups.norm.running_mean, golden("group_norm/after.norm.running_mean")) < 1e-14);
  CHECK(distance(groups.norm.running_var, golden("group_norm/after.norm.running_var")) < 1e-14);
  CHECK_THROWS_AS(groups.forward(ones({4, 6}, f64), Mode::eval()), Error);
  CHECK_THROWS_WITH_AS(DiffGroupNorm(root, "none", 7, {.groups = 0}),
                       "DiffGroupNorm: features and groups must be at least 1, got 7 and 0", Error);

  MessageNorm message(root, "message", {.dtype = f64});
  check_golden(
      "message_norm", message,
      [&](const Tensor& m, const Tensor& h) { return message.forward(m, h); }, true);
  CHECK_THROWS_WITH_AS(message.forward(ones({4, 6}, f64), ones({5, 6}, f64)),
                       "message_norm: expects (N, D), (N, any) and (1), got (4, 6), (5, 6) and (1)",
                       Error);

  Module none;
  check_golden("mean_norm", none, [](const Tensor& x, const Tensor&) { return mean_norm(x); });
  check_golden("node_norm", none, [](const Tensor& x, const Tensor&) { return node_norm(x, 3); });
}

TEST_CASE("NodeNorm: what p does, rows without deviation, errors; MeanNorm is a projection") {
  Generator rng{2};
  const Tensor x = randn({6, 40}, f64, rng);
  Tensor scaled = x.clone();
  for (std::int64_t i = 0; i < x.numel(); ++i) scaled.mutable_data<double>()[i] *= 16;
  for (const double p : {1.0, 2.0, 4.0})
    CHECK(node_norm(scaled, p, 1e-12).data<double>()[7] ==
          doctest::Approx(std::pow(16, 1 - 1 / p) * node_norm(x, p, 1e-12).data<double>()[7]));
  // A constant row is divided by eps^(1 / 2p).
  const Tensor flat = full({1, 5}, 3.0, f64);
  CHECK(node_norm(flat, 2, 1e-4).data<double>()[0] == doctest::Approx(30));
  CHECK(node_norm(zeros({0, 3})).shape() == Shape{0, 3});
  CHECK_THROWS_WITH_AS(node_norm(ones({3})),
                       "node_norm: expects a matrix (nodes, features), got (3)", Error);
  CHECK_THROWS_WITH_AS(node_norm(ones({3, 2}), 0),
                       "node_norm: p and eps must be positive and finite, got 0 and 1e-05", Error);

  const Tensor jacobian =
      test::jacobian(randn({5, 3}, f64, rng), [](const Tensor& at) { return mean_norm(at); });
  CHECK(largest_singular_value(15, 15, jacobian.data<double>()) == doctest::Approx(1));
  CHECK(distance(mean_norm(mean_norm(x)), mean_norm(x)) < 1e-15);
}

TEST_CASE("FeatureNorm: each kind is its layer, with the layer's names") {
  Generator rng{3};
  const Tensor x = randn({9, 4}, f32, rng), entering = randn({9, 6}, f32, rng);
  struct Expected {
    FeatureNormKind kind;
    std::vector<std::string> parameters, buffers;
  };
  using K = FeatureNormKind;
  for (const auto& [kind, parameters, buffers] : std::vector<Expected>{
           {K::node_norm, {}, {}},
           {K::mean_norm, {}, {}},
           {K::graph_norm, {"graph_norm.weight", "graph_norm.bias", "graph_norm.mean_scale"}, {}},
           {K::batch_norm,
            {"batch_norm.weight", "batch_norm.bias"},
            {"batch_norm.running_mean", "batch_norm.running_var"}},
           {K::group_norm,
            {"group_norm.lin.weight", "group_norm.norm.weight", "group_norm.norm.bias"},
            {"group_norm.norm.running_mean", "group_norm.norm.running_var"}},
           {K::message_norm, {"message_norm.scale"}, {}}}) {
    CAPTURE(static_cast<int>(kind));
    Module root;
    FeatureNorm norm(root, "norm", 4, {.kind = kind, .scale = 2, .p = 3, .groups = 2});
    root.initialize(rng);
    std::vector<std::string> names, kept;
    for (auto& [path, parameter] : norm.named_parameters()) names.push_back(path);
    for (auto& [path, buffer] : norm.named_buffers()) kept.push_back(path);
    CHECK(names == parameters);
    CHECK(kept == buffers);
    const Tensor y = norm.forward(x, Mode::train(rng), entering);
    const auto expected = [&] {
      switch (kind) {
        case K::node_norm:
          return node_norm(x, 3);
        case K::mean_norm:
          return mean_norm(x);
        case K::graph_norm:
          return graph_norm(x, {}, {}, {});
        case K::batch_norm:
          return batch_norm(x);
        case K::message_norm:
          return message_norm(x, entering, full({1}, 2.0));
        default:
          return norm.group_norm->forward(x, Mode::train(rng));
      }
    };
    CHECK(bitwise_equal(y, expected()));
  }
  Module root;
  FeatureNorm message(root, "norm", 4, {.kind = K::message_norm});
  root.initialize(rng);
  CHECK_THROWS_WITH_AS(message.forward(x, Mode::eval()),
                       "FeatureNorm: MessageNorm needs what entered the layer", Error);
}

}  // namespace lipgrad
