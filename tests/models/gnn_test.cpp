#include <lipgrad/models/gnn.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/map.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/spectral_norm.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

const NodeData& data() {
  static const NodeData generated = generated_citation_graph({.num_nodes = 200,
                                                              .num_edges = 500,
                                                              .num_features = 120,
                                                              .num_classes = 4,
                                                              .train_per_class = 10,
                                                              .num_val = 40,
                                                              .num_test = 80});
  return generated;
}

GnnOptions deep(std::int64_t layers) {
  return {.in = data().features.cols(),
          .out = data().num_classes,
          .layers = layers,
          .heads = 2,
          .hidden = 8,
          .linear_ends = true,
          .attention_dropout = 0.3};
}

// Recipe R2: every part at once.
GnnOptions everything(std::int64_t layers) {
  GnnOptions o = deep(layers);
  o.attention_norm = LipschitzNorm{};
  o.norm.kind = FeatureNormKind::center_norm;
  o.residual = Residual::damped;
  o.residual_gain = 12;
  o.initial_residual = 0.1;
  o.identity_map = 0.5;
  o.spectral_init = o.input_activation = o.last_activation = true;
  return o;
}

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : module.named_parameters()) all.push_back(name);
  return all;
}

const GatConv& gat(const Gnn& net, std::size_t layer) {
  return dynamic_cast<const GatConv&>(net.conv(layer));
}

}  // namespace

TEST_CASE("Gnn: its parameters, by name and shape") {
  const Gnn standard({.in = 120, .out = 4});
  CHECK(names(standard) == std::vector<std::string>{"conv.0.lin.weight", "conv.0.att_src",
                                                    "conv.0.att_dst", "conv.0.bias",
                                                    "conv.1.lin.weight", "conv.1.att_src",
                                                    "conv.1.att_dst", "conv.1.bias"});
  const Gnn ends(deep(2));
  CHECK(names(ends).size() == 2 * 4 + 4);
  CHECK(std::ranges::count(names(ends), "input.weight") == 1);
  CHECK(names(ends).back() == "output.bias");
  CHECK(ends.input->weight.shape() == Shape({8, 120}));
  CHECK(gat(ends, 0).lin.weight.shape() == Shape({16, 8}));
  CHECK(gat(ends, 1).lin.weight.shape() == Shape({16, 16}));
  CHECK(ends.output->weight.shape() == Shape({4, 16}));
  const Gnn all(everything(3));
  CHECK(all.input->weight.shape() == Shape({16, 120}));
  CHECK(all.norm.size() == 3);
  CHECK(all.residual.size() == 3);
  GnnOptions weighted = deep(3);
  weighted.residual = Residual::weighted;
  weighted.norm.kind = FeatureNormKind::layer_norm;
  CHECK(Gnn(weighted).residual.size() == 2);  // 8 features enter the first layer, 16 leave it
  CHECK(Gnn(weighted).norm.size() == 2);      // none after the last
}

TEST_CASE("Gnn: initial values") {
  Gnn net(everything(20));
  Generator rng{1};
  net.initialize(rng);
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(net.options().layers); ++layer) {
    CHECK(spectral_norm(gat(net, layer).lin.weight) == doctest::Approx(1).epsilon(1e-5));
    CHECK(net.residual[layer].alpha.value().data<float>()[3] == doctest::Approx(0.6));
    CHECK(gat(net, layer).options().identity_map ==
          doctest::Approx(std::log(0.5 / double(layer + 1) + 1)));
  }
}

TEST_CASE("Gnn: with residual gain 0 a damped network hands on what enters it") {
  GnnOptions options = everything(6);
  options.residual_gain = 0;
  options.norm.kind = FeatureNormKind::none;
  Gnn net(options);
  Generator rng{2};
  net.initialize(rng);
  const Tensor logits = net.forward(data().graph, data().features, Mode::eval());
  // The same by hand: ELU(x W0 + b0) W1 + b1.
  const Tensor h = net.input->forward(data().features.sparse());
  const Tensor activated = lipgrad::map("elu", h, [](auto x) { return x > 0 ? x : std::expm1(x); });
  const Tensor expected = net.output->forward(activated);
  for (std::int64_t i = 0; i < logits.numel(); ++i)
    CHECK(logits.data<float>()[i] == doctest::Approx(expected.data<float>()[i]).epsilon(1e-5));
}

TEST_CASE("Gnn: the groups of an optimiser have their own decay and rate") {
  // With gradients of zero, Adam moves a parameter by its decay alone, and by its rate times one.
  Gnn net(everything(2));
  Generator rng{3};
  net.initialize(rng);
  std::map<std::string, Tensor> before;
  for (auto& [name, parameter] : net.named_parameters()) {
    parameter->set_value(ones(parameter->shape()));
    before[name] = parameter->value().clone();
    parameter->add_grad(zeros(parameter->shape()));
  }
  Sgd optimizer(
      net, {.lr = 0.5,
            .weight_decay = 0.01,
            .groups = gnn_groups(
                {.layer_weight_decay = 0.1, .scale_weight_decay = 0.2, .scale_lr_factor = 0.25})});
  optimizer.step();
  for (const auto& [name, parameter] : net.named_parameters()) {
    const double moved = 1 - double(parameter->value().data<float>()[0]);
    const bool scale = name.find("att_") != std::string::npos || name.starts_with("norm") ||
                       name.starts_with("residual");
    const bool layer = name.starts_with("conv") && !scale;
    CAPTURE(name);
    CHECK(moved == doctest::Approx(scale ? 0.5 * 0.25 * 0.2 : layer ? 0.5 * 0.1 : 0.5 * 0.01));
  }
}

TEST_CASE("Gnn: at thirty layers, LipschitzNorm keeps the first gradients small") {
  // The same network of 30 layers but for the norm, after one step in training mode.
  double largest[2] = {0, 0};
  for (const bool normed : {false, true}) {
    GnnOptions options = deep(30);
    options.heads = 4;
    options.hidden = 16;
    if (normed) options.attention_norm = LipschitzNorm{};
    std::vector<double> seeds;
    for (const std::uint64_t seed : {0, 1, 2}) {
      Gnn net(options);
      Generator rng{seed};
      net.initialize(rng);
      Tape tape;
      // Raw words, as many a node as Cora has: the features' size is what plain attention minds.
      const Tensor words = lipgrad::map("words", data().features.to_dense(),
                                        [](auto x) { return x > 0 ? decltype(x)(3) : x; });
      const Tensor logits = net.forward(data().graph, words, Mode::train(rng));
      tape.backward(cross_entropy(logits, data().labels, {.rows = data().train}));
      double most = 0;
      for (const auto& [path, norm] : grad_norms(net).parameters)
        if (path.ends_with("lin.weight")) most = std::max(most, norm);
      seeds.push_back(most);
    }
    std::sort(seeds.begin(), seeds.end());
    largest[normed] = seeds[1];
  }
  MESSAGE("largest gradient of a weight, median of three seeds: ", largest[0], " without, ",
          largest[1], " with LipschitzNorm");
  CHECK(std::isfinite(largest[1]));
  CHECK(largest[0] > 1000 * largest[1]);
}

// The recipe with every part, for another kind of layer.
GnnOptions everything_of(GnnLayer layer, std::int64_t layers) {
  GnnOptions o = everything(layers);
  o.layer = layer;
  if (!has_attention(layer)) {
    o.heads = 1;
    o.attention_norm = {};
  }
  if (layer == GnnLayer::ggnn) {
    o.identity_map = 0;
    o.residual = Residual::none;  // a gated unit has its own
  }
  return o;
}

constexpr GnnLayer all_layers[] = {GnnLayer::gcn, GnnLayer::ggnn, GnnLayer::gat, GnnLayer::gatv2,
                                   GnnLayer::transformer};

TEST_CASE("Gnn: every kind of layer learns, with every part at once") {
  for (const GnnLayer layer : all_layers) {
    CAPTURE(static_cast<int>(layer));
    GnnOptions options = everything_of(layer, 6);
    options.heads = 1;
    options.hidden = 32;
    options.dropout = 0.2;
    options.attention_dropout = 0;
    Gnn net(options);
    Generator rng{4};
    net.initialize(rng);
    Adam optimizer(net, {.lr = 0.01});
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 60; ++epoch) {
      Tape tape;
      const Tensor loss =
          cross_entropy(net.forward(data().graph, data().features, Mode::train(rng)), data().labels,
                        {.rows = data().train});
      (epoch == 0 ? first : last) = loss.item();
      tape.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    CHECK(last < 0.5 * first);
    const Tensor logits = net.forward(data().graph, data().features, Mode::eval());
    CHECK(accuracy(logits, data().labels, data().train) > 0.75);
  }
}

TEST_CASE("Gnn: bitwise the same training on any number of threads") {
  const int before = num_threads();
  for (const GnnLayer layer : all_layers) {
    CAPTURE(static_cast<int>(layer));
    for (const bool sparse : {false, true}) {
      const Features features = sparse ? data().features : Features(data().features.to_dense());
      std::vector<float> first;
      for (const int threads : {1, 2, 3}) {
        set_num_threads(threads);
        Gnn net(everything_of(layer, 3));
        Generator rng{8};
        net.initialize(rng);
        Adam optimizer(net, {.lr = 0.01, .weight_decay = 5e-4});
        for (int epoch = 0; epoch < 3; ++epoch) {
          Tape tape;
          tape.backward(cross_entropy(net.forward(data().graph, features, Mode::train(rng)),
                                      data().labels, {.rows = data().train}));
          optimizer.step();
          optimizer.zero_grad();
        }
        const Tensor logits = net.forward(data().graph, features, Mode::eval());
        std::vector<float> values(logits.data<float>(), logits.data<float>() + logits.numel());
        if (threads == 1) first = values;
        CHECK(values == first);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("Gnn: layers computed again give the same bits for less memory") {
  for (const GnnLayer layer : all_layers) {
    CAPTURE(static_cast<int>(layer));
    std::vector<std::vector<float>> gradients[2];
    std::int64_t saved[2];
    for (const bool again : {false, true}) {
      GnnOptions options = everything_of(layer, 8);
      options.checkpoint_layers = again;
      Gnn net(options);
      Generator rng{4};
      net.initialize(rng);
      Tape tape;
      const Tensor loss =
          cross_entropy(net.forward(data().graph, data().features, Mode::train(rng)), data().labels,
                        {.rows = data().train});
      saved[again] = tape.bytes_saved();
      tape.backward(loss);
      for (const Parameter* parameter : net.parameters()) {
        const float* g = parameter->grad().data<float>();
        gradients[again].emplace_back(g, g + parameter->numel());
      }
    }
    CHECK(gradients[0] == gradients[1]);
    CHECK(saved[1] < saved[0] / 2);
  }
}

TEST_CASE("Gnn: features of edges reach the logits of those layers that take them") {
  Generator rng{6};
  const Graph& graph = data().graph;
  const Tensor edges = randn({graph.num_edges(), 3}, f32, rng);
  for (const GnnLayer layer : all_layers) {
    CAPTURE(static_cast<int>(layer));
    GnnOptions options = everything_of(layer, 3);
    options.edge_features = 3;  // of gcn and ggnn: refused
    if (!takes_edge_features(layer)) {
      CHECK_THROWS_AS(Gnn{options}, Error);
      continue;
    }
    Gnn net(options);
    net.initialize(rng);
    const Tensor with = net.forward(graph, data().features, edges, Mode::eval());
    const Tensor zero =
        net.forward(graph, data().features, zeros({graph.num_edges(), 3}), Mode::eval());
    double most = 0;
    for (std::int64_t i = 0; i < with.numel(); ++i)
      most = std::max(most, std::fabs(double(with.data<float>()[i]) - zero.data<float>()[i]));
    CHECK(most > 1e-4);
    CHECK_THROWS_AS(net.forward(graph, data().features, Mode::eval()), Error);
  }
}

TEST_CASE("Gnn: layers as configured; dense and sparse features give the same") {
  Generator rng{9};
  Gnn net({.in = 12, .out = 3, .layers = 4, .heads = 2, .hidden = 5, .out_heads = 2, .dtype = f64});
  net.initialize(rng);
  CHECK(net.options().layers == 4);
  CHECK(gat(net, 0).lin.weight.shape() == Shape{10, 12});
  CHECK(gat(net, 2).lin.weight.shape() == Shape{10, 10});
  CHECK(gat(net, 3).lin.weight.shape() == Shape{6, 10});
  CHECK(gat(net, 3).bias->shape() == Shape{3});
  const Tensor ends = rand_int({90, 2}, 30, rng);
  const Graph graph(30, ends);
  const Tensor x = randn({30, 12}, f64, rng);
  const Tensor y = net.forward(graph, x, Mode::eval());
  CHECK(y.shape() == Shape{30, 3});
  CHECK(test::distance(net.forward(graph, CsrMatrix::from_dense(x), Mode::eval()), y) < 1e-13);
  Tensor h = net.conv(0).forward(graph, x, Mode::eval());
  for (std::size_t layer = 1; layer < 4; ++layer)
    h = net.conv(layer).forward(graph, elu(h), Mode::eval());
  CHECK(test::distance(h, y) == 0);
  CHECK_THROWS_WITH_AS(Gnn({.in = 3, .out = 2, .layers = 0}),
                       "Gnn: layers must be at least 1, got 0", Error);
}

TEST_CASE("Gnn: options out of range") {
  const auto refused = [](auto change) {
    GnnOptions options = deep(3);
    change(options);
    CHECK_THROWS_AS(Gnn{options}, Error);
  };
  refused([](GnnOptions& o) { o.layers = 0; });
  refused([](GnnOptions& o) { o.dropout = 1.5; });
  refused([](GnnOptions& o) { o.input_dropout = -0.1; });
  refused([](GnnOptions& o) { o.initial_residual = 1; });
  refused([](GnnOptions& o) { o.identity_map = -1; });
  refused([](GnnOptions& o) { o.linear_ends = false, o.identity_map = 0.5; });
  refused([](GnnOptions& o) { o.identity_map = 0.5, o.input_width = 5; });
  refused([](GnnOptions& o) { o.attention_norm = LipschitzNorm{.kappa = 0}; });
  refused([](GnnOptions& o) { o.layer = GnnLayer::gcn; });  // has no heads
  refused([](GnnOptions& o) { o.layer = GnnLayer::ggnn, o.heads = 1, o.identity_map = 0.5; });
  refused([](GnnOptions& o) { o.layer = GnnLayer::ggnn, o.heads = 1, o.linear_ends = false; });
  refused([](GnnOptions& o) { o.layer = GnnLayer::gcn, o.heads = 1, o.edge_features = 2; });
}

}  // namespace lipgrad
