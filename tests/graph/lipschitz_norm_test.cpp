// What LipschitzNorm promises of graph attention: scores of a bounded size, whatever the size of
// the features, and a Jacobian that does not grow with them.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/gat_conv.h>
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/spectral_norm.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

// Edges between different pairs of nodes, self-loops among them.
Graph random_graph(std::int64_t nodes, std::int64_t edges) {
  Generator rng{8};
  const Tensor pair = rand_permutation(nodes * nodes, rng);
  std::vector<std::int64_t> ends;
  for (std::int64_t e = 0; e < edges; ++e) {
    ends.push_back(pair.data<std::int64_t>()[e] / nodes);
    ends.push_back(pair.data<std::int64_t>()[e] % nodes);
  }
  return Graph(nodes, from_vector({edges, 2}, ends));
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double difference = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i)
    difference = std::max(difference, std::abs(a.data<double>()[i] - b.data<double>()[i]));
  return difference;
}

std::vector<LipschitzNorm> all_norms() {
  std::vector<LipschitzNorm> norms;
  for (const NormScope scope : {NormScope::neighbourhood, NormScope::global})
    for (const bool joint : {false, true})
      for (const bool edge_source : {false, true})
        norms.push_back({.scope = scope, .joint = joint, .edge_source = edge_source});
  return norms;
}

}  // namespace

TEST_CASE("LipschitzNorm: outputs do not depend on the size of a, and go with that of z") {
  const Graph graph = random_graph(30, 90);
  Generator rng{4};
  const Tensor z = randn({30, 12}, f64, rng), src = randn({3, 4}, f64, rng),
               dst = randn({3, 4}, f64, rng);
  for (LipschitzNorm norm : all_norms()) {
    norm.kappa = 0.2;
    const GatAttentionOptions options{.norm = norm};
    const auto attend = [&](double of_z, double of_a) {
      return gat_attention(graph, mul(z, of_z), mul(src, of_a), mul(dst, of_a), {}, options,
                           Mode::eval());
    };
    const Tensor once = attend(1, 1);
    for (const double t : {1e-3, 0.1, 100.0, 1e6}) {
      CHECK(largest_difference(attend(1, t), once) < 1e-9);
      CHECK(largest_difference(attend(t, 1), mul(once, t)) < 1e-9 * t);
    }
    // The norm matters: without it they would.
    const Tensor plain = gat_attention(graph, z, src, dst, {}, {}, Mode::eval());
    const Tensor larger =
        gat_attention(graph, z, mul(src, 10.0), mul(dst, 10.0), {}, {}, Mode::eval());
    CHECK(largest_difference(plain, larger) > 0.1);
  }
}

TEST_CASE("LipschitzNorm: no score exceeds 1 / kappa") {
  // z = diag(c), so that out[i, j] / c[j] is the weight of edge j -> i and log ratios of the
  // weights of a node are differences of its scores after LeakyReLU. Of a score s, |s| <= 1 /
  // kappa.
  const std::int64_t n = 12;
  const Graph graph = random_graph(n, 70);
  Generator rng{6};
  double worst = 0;
  for (LipschitzNorm norm : all_norms()) {
    for (const double kappa : {4.0, 1.0}) {
      norm.kappa = 2 * kappa;
      norm.alpha = 2;
      for (int trial = 0; trial < 30; ++trial) {
        Tensor z = zeros({n, n}, f64), c = randn({n}, f64, rng);
        for (std::int64_t i = 0; i < n; ++i) {
          double& size = c.mutable_data<double>()[i];
          size = std::exp(3 * size);  // sizes far apart
          z.mutable_data<double>()[i * n + i] = size;
        }
        const Tensor src = randn({1, n}, f64, rng), dst = randn({1, n}, f64, rng);
        const Tensor out = gat_attention(graph, z, mul(src, 50.0), mul(dst, 50.0), {},
                                         {.norm = norm}, Mode::eval());
        for (std::int64_t i = 0; i < n; ++i) {
          double low = 1e300, high = 0;
          for (std::int64_t j = 0; j < n; ++j) {
            const double weight = out.data<double>()[i * n + j] / c.data<double>()[j];
            if (weight <= 1e-12) continue;  // no edge
            low = std::min(low, weight);
            high = std::max(high, weight);
          }
          const double spread = std::log(high / low);
          CHECK(spread <= 1.2 / kappa + 1e-9);
          worst = std::max(worst, kappa * spread);
        }
      }
    }
  }
  CHECK(worst > 0.4);
}

TEST_CASE("LipschitzNorm: scores by the definition, and the bound is nearly reached") {
  // Two nodes, one edge 1 -> 0 and self-loops: the ratio of node 0's two weights gives its scores.
  const Graph graph(2, from_values<std::int64_t>({1, 2}, {1, 0}));
  const double kappa = 4;
  Generator rng{1};
  double largest = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Tensor src = randn({1, 2}, f64, rng), dst = randn({1, 2}, f64, rng);
    const double c0 = std::exp(trial % 7 - 3.0), c1 = std::exp(trial % 5 - 2.0);
    const Tensor z = from_values<double>({2, 2}, {c0, 0, 0, c1});
    const Tensor out =
        gat_attention(graph, z, src, dst, {}, {.norm = LipschitzNorm{}}, Mode::eval());
    const double own = out.data<double>()[0] / c0, other = out.data<double>()[1] / c1;
    const double *s = src.data<double>(), *d = dst.data<double>();
    const double a = std::sqrt(s[0] * s[0] + s[1] * s[1] + d[0] * d[0] + d[1] * d[1]);
    const double r = std::sqrt(c0 * c0 + std::max(c0 * c0, c1 * c1));
    const auto leaky = [](double x) { return x > 0 ? x : 0.2 * x; };
    const double own_score = (d[0] * c0 + s[0] * c0) / (kappa * a * r),
                 other_score = (d[0] * c0 + s[1] * c1) / (kappa * a * r);
    CHECK(std::abs(std::log(own / other) - (leaky(own_score) - leaky(other_score))) < 1e-12);
    for (const double score : {own_score, other_score}) {
      CHECK(std::abs(score) <= 1 / kappa);
      largest = std::max(largest, std::abs(score) * kappa);
    }
  }
  CHECK(largest > 0.9);
}

TEST_CASE("LipschitzNorm: a layer's Jacobian stays as inputs grow, plain attention's does not") {
  const std::int64_t n = 14, width = 6;
  const Graph graph = random_graph(n, 40);
  Generator rng{12};
  struct Root : Module {
    GatConv conv;
    explicit Root(std::optional<LipschitzNorm> norm)
        : conv(*this, "conv", {.in = width, .out = 3, .heads = 2, .norm = norm, .dtype = f64}) {}
  };
  const Tensor x = randn({n, width}, f64, rng);
  const auto norms_of = [&](std::optional<LipschitzNorm> norm) {
    Root root(norm);
    Generator init{3};
    root.initialize(init);
    std::vector<double> measured;
    for (const double scale : {0.1, 1.0, 10.0, 100.0})
      measured.push_back(spectral_norm(test::jacobian(mul(x, scale), [&](const Tensor& at) {
        return root.conv.forward(graph, at, Mode::eval());
      })));
    if (!norm) return measured;
    const double size = spectral_norm(root.conv.lin.weight),
                 certified = gat_certificate(graph, true, ScoreKind::gat, *norm) * size;
    for (const double norm_at : measured) CHECK(norm_at <= certified);
    // With a target the same, divided by that.
    norm->target_lipschitz = 0.5;
    Root scaled(norm);
    Generator again{3};
    scaled.initialize(again);
    const double norm_at = spectral_norm(test::jacobian(
        x, [&](const Tensor& at) { return scaled.conv.forward(graph, at, Mode::eval()); }));
    CHECK(norm_at == doctest::Approx(measured[1] * 0.5 / certified).epsilon(1e-9));
    CHECK(norm_at <= 0.5);
    return measured;
  };
  for (const double kappa : {0.25, 4.0})
    for (LipschitzNorm norm : all_norms()) {
      norm.kappa = kappa;
      const std::vector<double> bounded = norms_of(norm);
      MESSAGE("kappa ", kappa, ": Jacobian norm with inputs times 0.1, 1, 10, 100: ", bounded[0],
              ", ", bounded[1], ", ", bounded[2], ", ", bounded[3]);
      for (const double value : bounded) CHECK(value == doctest::Approx(bounded[0]).epsilon(1e-6));
    }
  const std::vector<double> plain = norms_of({});
  MESSAGE("and without the norm: ", plain[0], ", ", plain[1], ", ", plain[2], ", ", plain[3]);
  CHECK(plain[3] > 2 * plain[0]);
  CHECK(plain[2] > plain[1]);
}

TEST_CASE("gat_certificate: by hand, and repeated edges") {
  // 0 <- 1, 0 <- 1, 2 <- 1, with loops: rows of 3, 1 and 2 edges; node 1 is in all neighbourhoods.
  const Graph graph(3, from_values<std::int64_t>({3, 2}, {1, 0, 1, 0, 1, 2}));
  const auto certificate = [&](ScoreKind kind, LipschitzNorm norm, bool loops = true) {
    return gat_certificate(graph, loops, kind, norm);
  };
  // Node 1 attends to itself alone: its weight is 1.
  CHECK(certificate(ScoreKind::gat, {}) == doctest::Approx(std::sqrt(3.0) * (1 + 2 / 4.0)));
  CHECK(certificate(ScoreKind::gat, {.kappa = 8, .alpha = 2}) ==
        doctest::Approx(std::sqrt(3.0) * (1 + 2 / 4.0)));
  CHECK(certificate(ScoreKind::gatv2, {.kappa = 2}) ==
        doctest::Approx(std::sqrt(3.0) * (1 + std::sqrt(8.0) / 2)));
  CHECK(certificate(ScoreKind::gat, {.scope = NormScope::global}) ==
        doctest::Approx(std::sqrt(3.0) * (1 + (1 + std::sqrt(0.5)) / 4) + std::sqrt(3.0) / 4));
  // Every pair once: rows of four.
  std::vector<std::int64_t> ends;
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 4; ++j) ends.insert(ends.end(), {i, j});
  const Graph full(4, from_vector({16, 2}, ends));
  CHECK(gat_certificate(full, false, ScoreKind::gat, {}) ==
        doctest::Approx(2 * (std::exp(0.25) / 2 + 0.5)));
  CHECK_THROWS_WITH_AS(certificate(ScoreKind::gat, {.edge_source = true}, false),
                       doctest::Contains("take self-loops"), Error);
  CHECK_THROWS_WITH_AS(certificate(ScoreKind::dot_uvw, {}), doctest::Contains("gat or gatv2"),
                       Error);
}

TEST_CASE("LipschitzNorm: detached, gradients are those of scores over constants") {
  const Graph graph = random_graph(9, 30);
  Generator rng{5};
  const Tensor z0 = randn({9, 6}, f64, rng), r = randn({9, 6}, f64, rng),
               src = randn({2, 3}, f64, rng), dst = randn({2, 3}, f64, rng);
  const auto gradient = [&](std::optional<LipschitzNorm> norm, const Tensor& a, const Tensor& b) {
    Tape tape;
    const Tensor z = tape.watch(z0);
    return tape.grad(gat_attention(graph, z, a, b, {}, {.norm = norm}, Mode::eval()), {z}, r)[0];
  };
  LipschitzNorm norm{.scope = NormScope::global, .edge_source = false, .kappa = 0.5};
  const Tensor through = gradient(norm, src, dst);
  norm.detach = true;
  const Tensor constant = gradient(norm, src, dst);
  CHECK(largest_difference(through, constant) > 1e-3);
  // One head whose features all have the same norm: then denominators are one number.
  Tensor unit = z0.clone();
  for (std::int64_t i = 0; i < 9; ++i) {
    double squares = 0;
    for (std::int64_t c = 0; c < 6; ++c) squares += std::pow(unit.data<double>()[6 * i + c], 2);
    for (std::int64_t c = 0; c < 6; ++c)
      unit.mutable_data<double>()[6 * i + c] /= std::sqrt(squares);
  }
  const Tensor a = randn({1, 6}, f64, rng), b = randn({1, 6}, f64, rng);
  double length = 0;
  for (std::int64_t c = 0; c < 6; ++c)
    length += std::pow(a.data<double>()[c], 2) + std::pow(b.data<double>()[c], 2);
  const double divisor = 0.5 * std::sqrt(2 * length);
  Tape tape;
  const Tensor z = tape.watch(unit);
  norm.scope.reset();
  const Tensor normed = gat_attention(graph, z, a, b, {}, {.norm = norm}, Mode::eval());
  const Tensor plain =
      gat_attention(graph, z, div(a, divisor), div(b, divisor), {}, {}, Mode::eval());
  CHECK(largest_difference(normed.detach(), plain.detach()) < 1e-12);
  CHECK(largest_difference(tape.grad(normed, {z}, r, {.retain = true})[0],
                           tape.grad(plain, {z}, r, {.retain = true})[0]) < 1e-12);
}

TEST_CASE("LipschitzNorm: features of zero, and options out of range") {
  const Graph graph = random_graph(6, 12);
  Generator rng{2};
  const Tensor a = randn({2, 3}, f64, rng);
  for (LipschitzNorm norm : all_norms()) {
    Tape tape;
    const Tensor z = tape.watch(zeros({6, 6}, f64)), src = tape.watch(a), dst = tape.watch(a);
    const Tensor y = gat_attention(graph, z, src, dst, {}, {.norm = norm}, Mode::eval());
    for (std::int64_t i = 0; i < y.numel(); ++i) CHECK(y.data<double>()[i] == 0);
    for (const Tensor& g : tape.grad(y, {z, src, dst}, ones(y.shape(), f64)))
      for (std::int64_t i = 0; i < g.numel(); ++i) CHECK(std::isfinite(g.data<double>()[i]));
  }
  const Tensor z = randn({6, 6}, f64, rng);
  const auto refused = [&](const LipschitzNorm& norm, const char* why) {
    CHECK_THROWS_WITH_AS(gat_attention(graph, z, a, a, {}, {.norm = norm}, Mode::eval()),
                         doctest::Contains(why), Error);
  };
  for (const double kappa : {0.0, -1.0, std::nan("")})
    refused({.kappa = kappa}, "kappa must be positive and finite");
  refused({.alpha = 0}, "alpha must be positive and finite");
  refused({.eps = -1}, "eps must be finite and >= 0");
  refused({.query_norm = QueryNorm::per_node}, "query_norm must be left at global");
  refused({.pre_scale = true}, "pre_scale is for scores that are dot products");
  refused({.target_lipschitz = 1}, "target_lipschitz is for layers");
  struct One : Module {
    explicit One(const GatConvOptions& options) : conv(*this, "conv", options) {}
    GatConv conv;
  };
  CHECK_THROWS_WITH_AS(
      One(GatConvOptions{
          .in = 3, .out = 2, .negative_slope = -1.5, .norm = LipschitzNorm{.target_lipschitz = 1}}),
      doctest::Contains("needs a negative_slope from -1 to 1, got -1.5"), Error);
  CHECK_THROWS_WITH_AS(LipschitzNorm::reference_code_2022(ScoreKind::generic),
                       doctest::Contains("gat and dot_uvw only"), Error);
}

}  // namespace lipgrad
