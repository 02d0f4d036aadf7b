#include <lipgrad/models/gat.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/map.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/spectral_norm.h>

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

GatOptions deep(std::int64_t layers) {
  return {.in = data().features.cols(),
          .out = data().num_classes,
          .layers = layers,
          .heads = 2,
          .hidden = 8,
          .linear_ends = true,
          .attention_dropout = 0.3};
}

// Recipe R2: every part at once.
GatOptions everything(std::int64_t layers) {
  GatOptions o = deep(layers);
  o.attention_norm = AttentionNorm::lipschitz;
  o.norm = FeatureNormKind::center_norm;
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

}  // namespace

TEST_CASE("Gat: its parameters, by name and shape") {
  const Gat standard({.in = 120, .out = 4});
  CHECK(names(standard) == std::vector<std::string>{"conv.0.lin.weight", "conv.0.att_src",
                                                    "conv.0.att_dst", "conv.0.bias",
                                                    "conv.1.lin.weight", "conv.1.att_src",
                                                    "conv.1.att_dst", "conv.1.bias"});
  const Gat ends(deep(2));
  CHECK(names(ends).size() == 2 * 4 + 4);
  CHECK(std::ranges::count(names(ends), "input.weight") == 1);
  CHECK(names(ends).back() == "output.bias");
  CHECK(ends.input->weight.shape() == Shape({8, 120}));
  CHECK(ends.conv[0].lin.weight.shape() == Shape({16, 8}));
  CHECK(ends.conv[1].lin.weight.shape() == Shape({16, 16}));
  CHECK(ends.output->weight.shape() == Shape({4, 16}));
  const Gat all(everything(3));
  CHECK(all.input->weight.shape() == Shape({16, 120}));
  CHECK(all.norm.size() == 3);
  CHECK(all.residual.size() == 3);
  GatOptions weighted = deep(3);
  weighted.residual = Residual::weighted;
  weighted.norm = FeatureNormKind::layer_norm;
  CHECK(Gat(weighted).residual.size() == 2);  // 8 features enter the first layer, 16 leave it
  CHECK(Gat(weighted).norm.size() == 2);      // none after the last
}

TEST_CASE("Gat: initial values") {
  Gat net(everything(20));
  Generator rng{1};
  net.initialize(rng);
  for (std::size_t layer = 0; layer < net.conv.size(); ++layer) {
    CHECK(spectral_norm(net.conv[layer].lin.weight) == doctest::Approx(1).epsilon(1e-5));
    CHECK(net.residual[layer].alpha.value().data<float>()[3] == doctest::Approx(0.6));
    CHECK(net.conv[layer].options().identity_map ==
          doctest::Approx(std::log(0.5 / double(layer + 1) + 1)));
  }
}

TEST_CASE("Gat: with residual gain 0 a damped network hands on what enters it") {
  GatOptions options = everything(6);
  options.residual_gain = 0;
  options.norm = FeatureNormKind::none;
  Gat net(options);
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

TEST_CASE("Gat: the groups of an optimiser have their own decay and rate") {
  // With gradients of zero, Adam moves a parameter by its decay alone, and by its rate times one.
  Gat net(everything(2));
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
            .groups = gat_groups(
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

TEST_CASE("Gat: at thirty layers, LipschitzNorm keeps the first gradients small") {
  // The same network of 30 layers but for the norm, after one step in training mode.
  double largest[2] = {0, 0};
  for (const bool normed : {false, true}) {
    GatOptions options = deep(30);
    options.heads = 4;
    options.hidden = 16;
    if (normed) options.attention_norm = AttentionNorm::lipschitz;
    std::vector<double> seeds;
    for (const std::uint64_t seed : {0, 1, 2}) {
      Gat net(options);
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

TEST_CASE("Gat: options out of range") {
  const auto refused = [](auto change) {
    GatOptions options = deep(3);
    change(options);
    CHECK_THROWS_AS(Gat{options}, Error);
  };
  refused([](GatOptions& o) { o.layers = 0; });
  refused([](GatOptions& o) { o.dropout = 1.5; });
  refused([](GatOptions& o) { o.input_dropout = -0.1; });
  refused([](GatOptions& o) { o.initial_residual = 1; });
  refused([](GatOptions& o) { o.identity_map = -1; });
  refused([](GatOptions& o) { o.linear_ends = false, o.identity_map = 0.5; });
  refused([](GatOptions& o) { o.identity_map = 0.5, o.input_width = 5; });
  refused([](GatOptions& o) { o.kappa = 0, o.attention_norm = AttentionNorm::lipschitz; });
}

}  // namespace lipgrad
