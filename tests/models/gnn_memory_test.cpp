// What a Gnn of 30 layers holds in memory, in node tensors (nodes * heads * features floats): one
// of the size of ogbn-arxiv with 4 heads of 32 features has 86.7 MB.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/ops/loss.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

constexpr std::int64_t kNodes = 3000, kWidth = 128;
constexpr double kNodeTensor = 4.0 * kNodes * kWidth;

GnnOptions options(bool residuals) {
  GnnOptions o{.in = kWidth,
               .out = 40,
               .layers = 30,
               .heads = 4,
               .hidden = 32,
               .linear_ends = true,
               .input_width = kWidth,
               .dropout = 0.5,
               .attention_dropout = 0.5,
               .attention_norm = LipschitzNorm{}};
  if (residuals) {
    o.norm.kind = FeatureNormKind::center_norm;
    o.residual = Residual::damped;
    o.initial_residual = 0.1;
    o.identity_map = 0.5;
  }
  return o;
}

// Bytes at the peak of f() above what is live before it, in node tensors.
template <class F>
double peak_of(F&& f) {
  memory::release_cached();
  const std::int64_t before = memory::counters().live;
  memory::reset_peak();
  f();
  return static_cast<double>(memory::counters().peak - before) / kNodeTensor;
}

TEST_CASE("Gnn: memory of a training step of 30 layers, and with layers computed again") {
  Generator rng{3};
  const Graph graph(kNodes, rand_int({14 * kNodes, 2}, kNodes, rng));
  graph.reverse();
  const Features x = randn({kNodes, kWidth}, f32, rng);
  const Tensor labels = rand_int({kNodes}, 40, rng);
  for (const bool residuals : {false, true})
    for (const bool again : {false, true}) {
      GnnOptions o = options(residuals);
      o.checkpoint_layers = again;
      Gnn net(o);
      net.initialize(rng);
      const double peak = peak_of([&] {
        Tape tape;
        tape.backward(cross_entropy(net.forward(graph, x, Mode::train(rng)), labels));
      });
      CAPTURE(residuals);
      CAPTURE(again);
      // Of arxiv's size: 9 GB are 103.8 node tensors, 4 GB are 46.1; the graph takes 1.4 and the
      // features 1 of them, and weights count for more here.
      if (again)
        CHECK(peak < 43.5);
      else if (!residuals)
        CHECK(peak < 101);
    }
}

TEST_CASE("Gnn: memory of evaluation, of the whole graph and by blocks of nodes") {
  Generator rng{3};
  // Neighbours are near in number, so that blocks have few outside.
  std::vector<std::int32_t> source, destination;
  for (std::int32_t i = 0; i < kNodes; ++i)
    for (std::int32_t j = std::max(i - 3, 0); j < std::min(i + 4, std::int32_t{kNodes}); ++j) {
      source.push_back(j);
      destination.push_back(i);
    }
  const Graph graph(kNodes, source, destination);
  const Features x = randn({kNodes, kWidth}, f32, rng);
  for (const bool residuals : {false, true}) {
    CAPTURE(residuals);
    Gnn net(options(residuals));
    net.initialize(rng);
    Tensor whole, blocks;
    const double peak_whole = peak_of([&] { whole = net.forward(graph, x, Mode::eval()); }),
                 peak_blocks = peak_of([&] { blocks = net.evaluate_by_blocks(graph, x, {}, 100); });
    // Whole: a layer's input, projection and output, and h0. Weights towards the identity and
    // numbers per (node, head) are the rest.
    CHECK(peak_whole < (residuals ? 4.5 : 3.4));
    CHECK(peak_blocks < (residuals ? 3.5 : 2.5));
    CHECK(test::distance(blocks.to(f64), whole.to(f64)) < 1e-4);
  }
}

TEST_CASE("Gnn: what cannot be evaluated by blocks is refused") {
  Generator rng{3};
  const Graph graph(20, rand_int({60, 2}, 20, rng));
  const Features x = randn({20, 6}, f32, rng);
  const auto evaluate = [&](GnnOptions o) {
    o.in = 6, o.out = 3, o.layers = 3;
    Gnn net(o);
    net.initialize(rng);
    const Tensor whole = net.forward(graph, x, Mode::eval()),
                 blocks = net.evaluate_by_blocks(graph, x, {}, 7);
    return test::distance(blocks.to(f64), whole.to(f64));
  };
  CHECK(evaluate({}) < 1e-5);
  CHECK(evaluate({.norm = FeatureNormKind::layer_norm}) < 1e-5);
  CHECK_THROWS_AS(evaluate({.layer = GnnLayer::gcn, .heads = 1}), Error);
  CHECK_THROWS_AS(evaluate({.norm = FeatureNormKind::pair_norm}), Error);
  GnnOptions global;
  global.attention_norm = LipschitzNorm{.scope = NormScope::global};
  CHECK_THROWS_AS(evaluate(global), Error);
}

}  // namespace
}  // namespace lipgrad
