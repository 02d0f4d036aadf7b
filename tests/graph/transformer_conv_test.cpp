#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/npz.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/transformer_conv.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/spectral_norm.h>
#include <support/data.h>

namespace lipgrad {
namespace {

double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const Tensor x = a.detach().to(f64), y = b.detach().to(f64);
  double worst = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double d = std::abs(x.data<double>()[i] - y.data<double>()[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

struct One : Module {
  explicit One(const TransformerConvOptions& options) : conv(*this, "conv", options) {}
  TransformerConv conv;
};

}  // namespace

TEST_CASE("TransformerConv: PyTorch Geometric's values and gradients") {
  const NpzFile file(test::golden("transformer_conv/pyg.npz"));
  const auto tensor = [&](const std::string& name) { return to_tensor(file.read(name)); };
  const Graph graph(14, tensor("edges"));
  using Options = TransformerConvOptions;
  const std::map<std::string, Options> cases{
      {"concat", {.in = 6, .out = 4, .heads = 3}},
      {"mean", {.in = 6, .out = 5, .heads = 4, .concat = false}},
      {"beta", {.in = 5, .out = 7, .heads = 2, .beta = true}},
      {"beta_mean", {.in = 5, .out = 6, .heads = 2, .concat = false, .beta = true}},
      {"no_root", {.in = 5, .out = 8, .heads = 2, .root = false}},
      {"edges", {.in = 5, .out = 4, .heads = 2, .edge_features = 3}},
      {"edges_mean_beta",
       {.in = 5,
        .out = 3,
        .heads = 3,
        .concat = false,
        .beta = true,
        .edge_features = 4,
        .bias = false}}};
  for (auto [name, options] : cases) {
    CAPTURE(name);
    options.dtype = f64;
    One net(options);
    for (auto& [path, parameter] : net.conv.named_parameters())
      parameter->set_value(tensor(name + "/" + path));
    for (const bool sparse : {false, true}) {
      Tape tape;
      const Tensor x = tape.watch(tensor(name + "/x"));
      const Features features = sparse ? Features(CsrMatrix::from_dense(x.detach())) : Features(x);
      Tensor listed, e;
      if (options.edge_features > 0) {
        listed = tape.watch(tensor(name + "/e"));
        e = gather(listed, graph.edge_order());
      }
      const Tensor out = net.conv.forward(graph, features, e, Mode::eval());
      CHECK(difference(out, tensor(name + "/out")) < 1e-12);
      std::vector<Tensor> wanted;
      std::vector<std::string> names;
      const auto want = [&](const Tensor& t, const std::string& of) {
        wanted.push_back(t);
        names.push_back(of);
      };
      if (!sparse) want(x, "x");
      if (listed.defined()) want(listed, "e");
      for (auto& [path, parameter] : net.conv.named_parameters()) want(parameter->value(), path);
      const auto grads = tape.grad(out, wanted, tensor(name + "/r"));
      for (std::size_t i = 0; i < grads.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(difference(grads[i], tensor(name + "/grad." + names[i])) < 1e-10);
      }
    }
  }
}

TEST_CASE("TransformerConv: parameters, shapes and errors") {
  One net({.in = 6, .out = 3, .heads = 2, .beta = true, .edge_features = 4});
  std::vector<std::string> names;
  for (auto& [path, parameter] : net.named_parameters()) names.push_back(path);
  CHECK(names == std::vector<std::string>{"conv.lin_key.weight", "conv.lin_key.bias",
                                          "conv.lin_query.weight", "conv.lin_query.bias",
                                          "conv.lin_value.weight", "conv.lin_value.bias",
                                          "conv.lin_edge.weight", "conv.lin_skip.weight",
                                          "conv.lin_skip.bias", "conv.lin_beta.weight"});
  CHECK(net.conv.lin_beta->weight.shape() == Shape{1, 18});
  Generator rng{1};
  net.initialize(rng);
  const Graph graph(5, rand_int({9, 2}, 5, rng));
  const Tensor x = randn({5, 6}, f32, rng), e = randn({9, 4}, f32, rng);
  CHECK(net.conv.forward(graph, x, e, Mode::eval()).shape() == Shape{5, 6});
  CHECK_THROWS_WITH_AS(net.conv.forward(graph, x, Mode::eval()),
                       "TransformerConv: the layer was made for 4 features of edges and gets none",
                       Error);
  CHECK_THROWS_WITH_AS(
      net.conv.forward(graph, randn({4, 6}, f32, rng), e, Mode::eval()),
      "TransformerConv: features must be (5, 6) for this graph and layer, got (4, 6)", Error);
  CHECK_THROWS_WITH_AS(One({.in = 3, .out = 3, .root = false, .beta = true}),
                       "TransformerConv: the gate beta needs the root term", Error);
  CHECK_THROWS_WITH_AS(
      One({.in = 3, .out = 3, .beta = true, .norm = LipschitzNorm{.target_lipschitz = 1}}),
      "TransformerConv: with the gate beta there is no Lipschitz constant to bound", Error);
}

TEST_CASE("TransformerConv: the identity map is of the values") {
  Generator rng{3};
  const Graph graph(7, rand_int({20, 2}, 7, rng));
  const Tensor x = randn({7, 6}, f64, rng);
  One mapped({.in = 6, .out = 3, .heads = 2, .identity_map = 0.25, .dtype = f64}),
      plain({.in = 6, .out = 3, .heads = 2, .dtype = f64});
  mapped.initialize(rng);
  for (auto& [path, parameter] : plain.conv.named_parameters())
    for (auto& [other, from] : mapped.conv.named_parameters())
      if (path == other) parameter->set_value(from->value().detach().clone());
  Tensor weight = plain.conv.lin_value.weight.value().detach().clone();
  double* w = weight.mutable_data<double>();
  for (int i = 0; i < 36; ++i) w[i] = 0.25 * w[i] + (i % 7 == 0 ? 0.75 : 0.0);
  plain.conv.lin_value.weight.set_value(weight);
  CHECK(difference(mapped.conv.forward(graph, x, Mode::eval()),
                   plain.conv.forward(graph, x, Mode::eval())) < 1e-14);
}

TEST_CASE("TransformerConv: with target_lipschitz differences do not grow") {
  Generator rng{5};
  const Graph graph(12, rand_int({40, 2}, 12, rng));
  for (const NormScope scope : {NormScope::global, NormScope::neighbourhood}) {
    for (const int variant : {0, 1, 2}) {
      const bool root = variant == 1;
      const std::int64_t edge_features = variant == 2 ? 3 : 0;
      One net({.in = 4,
               .out = 4,
               .heads = 2,
               .self_loops = true,
               .root = root,
               .edge_features = edge_features,
               .norm = LipschitzNorm{.scope = scope, .target_lipschitz = 1},
               .dtype = f64});
      net.initialize(rng);
      for (auto& [path, p] : net.conv.named_parameters())
        p->set_value(randn(p->shape(), f64, rng));  // large weights
      for (const double step : {1e-4, 1.0, 30.0}) {
        const Tensor x = randn({12, 4}, f64, rng), noise = randn({12, 4}, f64, rng);
        Tensor y = x.clone();
        for (int i = 0; i < 48; ++i) y.mutable_data<double>()[i] += step * noise.data<double>()[i];
        const Tensor e = variant == 2 ? randn({40, 3}, f64, rng) : Tensor();
        const Tensor a = net.conv.forward(graph, x, e, Mode::eval()),
                     b = net.conv.forward(graph, y, e, Mode::eval());
        double in = 0, out = 0;
        for (int i = 0; i < 48; ++i) in += std::pow(y.data<double>()[i] - x.data<double>()[i], 2);
        for (std::int64_t i = 0; i < a.numel(); ++i)
          out += std::pow(b.data<double>()[i] - a.data<double>()[i], 2);
        CHECK(std::sqrt(out) <= std::sqrt(in));
        CHECK(out > 0);
      }
    }
  }
}

}  // namespace lipgrad
