// What LipschitzNorm promises of dot products and of scores of any kind, and what other readings of
// it do not.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <lipgrad/graph/dot_attention.h>
#include <lipgrad/graph/lipschitz_norm.h>
#include <lipgrad/graph/message_passing.h>
#include <lipgrad/graph/spectral_attention_norm.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/matmul.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/softmax.h>
#include <lipgrad/ops/spectral_norm.h>
#include <support/tensors.h>

namespace lipgrad {
namespace {

Graph random_graph(std::int64_t nodes, std::int64_t edges, std::uint64_t seed) {
  Generator rng{seed};
  const Tensor pair = rand_permutation(nodes * nodes, rng);
  std::vector<std::int64_t> ends;
  for (std::int64_t e = 0; e < edges; ++e) {
    ends.push_back(pair.data<std::int64_t>()[e] / nodes);
    ends.push_back(pair.data<std::int64_t>()[e] % nodes);
  }
  return Graph(nodes, from_vector({edges, 2}, ends));
}

Graph complete_graph(std::int64_t nodes) { return random_graph(nodes, nodes * nodes, 1); }

std::vector<LipschitzNorm> all_norms() {
  std::vector<LipschitzNorm> norms;
  for (const NormScope scope : {NormScope::neighbourhood, NormScope::global})
    for (const QueryNorm query : {QueryNorm::global, QueryNorm::per_node, QueryNorm::edge_expanded})
      for (const bool joint : {false, true})
        norms.push_back({.scope = scope, .query_norm = query, .joint = joint});
  return norms;
}

// (E, H)
Tensor scores_of(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                 const LipschitzNorm& norm, bool self_loops) {
  return mul(edge_dot(graph, k, q),
             gather_destinations(graph, lipschitz_scale(graph, q, k, v, norm, self_loops)));
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.to_vector<double>()) most = std::max(most, std::abs(value));
  return most;
}

// q, k and v of one tensor (3, N, H, D), as the function whose constants are known takes them.
Tensor attention(const Graph& graph, const Tensor& qkv, const LipschitzNorm* norm,
                 bool self_loops) {
  const Tensor q = squeeze(slice(qkv, 0, 0, 1), 0), k = squeeze(slice(qkv, 0, 1, 2), 0),
               v = squeeze(slice(qkv, 0, 2, 3), 0);
  const Tensor scale =
      norm != nullptr ? lipschitz_scale(graph, q, k, v, *norm, self_loops) : Tensor();
  return dot_attention(graph, q, k, v, scale, {.self_loops = self_loops}, Mode::eval());
}

// One factor for each of q, k and v.
Tensor stretched(const Tensor& qkv, std::array<double, 3> by) {
  return mul(qkv, reshape(from_vector<double>({3}, {by[0], by[1], by[2]}), {3, 1, 1, 1}));
}

// Each of u v, u w and v w the largest in some of them.
constexpr std::array<std::array<double, 3>, 6> kSizes{
    {{1, 1, 1}, {5, 3, 0.1}, {5, 0.1, 3}, {0.05, 3, 3}, {0.5, 2, 2}, {1e-3, 1e-3, 10}}};

}  // namespace

TEST_CASE("lipschitz_scale: scores do not depend on the size of the features and have a bound") {
  const Graph graph = random_graph(20, 90, 3);
  Generator rng{4};
  const Tensor qkv = randn({3, 20, 2, 4}, f64, rng);
  const auto part = [](const Tensor& x, int i) { return squeeze(slice(x, 0, i, i + 1), 0); };
  for (LipschitzNorm norm : all_norms()) {
    for (const bool loops : {false, true}) {
      norm.eps = 0;
      norm.alpha = 3;
      norm.kappa = 2;
      const auto scores = [&](const Tensor& x) {
        return scores_of(graph, part(x, 0), part(x, 1), part(x, 2), norm, loops);
      };
      const Tensor one = scores(qkv);
      for (const double t : {1e-3, 1e3}) CHECK(test::distance(scores(mul(qkv, t)), one) < 1e-12);
      for (const auto& size : kSizes) CHECK(largest(scores(stretched(qkv, size))) <= 1.5);
      CHECK(largest(one) > 0);
      norm.pre_scale = true;  // sqrt(4)
      CHECK(test::distance(scores(qkv), mul(one, 0.5)) < 1e-12);
      norm.pre_scale = false;
    }
  }
  // The bound is reached: one query, key and value.
  const Tensor e = ones({1, 1, 1}, f64);
  const Graph loop(1, from_values<std::int64_t>({1, 2}, {0, 0}));
  CHECK(largest(scores_of(loop, e, e, e, {}, false)) == doctest::Approx(1));
}

TEST_CASE("lipschitz_scale: the bound holds with features of edges in keys and values") {
  const Graph graph = random_graph(12, 50, 3);
  Generator rng{5};
  const Tensor q = randn({12, 2, 4}, f64, rng), k = randn({12, 2, 4}, f64, rng),
               v = randn({12, 2, 4}, f64, rng), added = mul(randn({50, 2, 4}, f64, rng), 3);
  const Tensor bound = max(row_norms(added), {0});
  for (const LipschitzNorm& norm : all_norms()) {
    const auto scores = [&](const Tensor& edge_bound) {
      const Tensor scale = lipschitz_scale(graph, q, k, v, norm, false, edge_bound);
      return mul(sum(mul(gather_destinations(graph, q), add(gather_sources(graph, k), added)), {2}),
                 gather_destinations(graph, scale));
    };
    CHECK(largest(scores(bound)) <= 1);
    if (norm.query_norm == QueryNorm::per_node && !norm.joint) CHECK(largest(scores({})) > 1);
  }
}

TEST_CASE("lipschitz_scale: by the formula, in all branches") {
  const Graph graph(3, from_values<std::int64_t>({3, 2}, {0, 1, 2, 1, 1, 2}));
  const Tensor q = from_vector<double>({3, 1, 2}, {3, 4, 0, 1, 2, 0}),
               k = from_vector<double>({3, 1, 2}, {1, 0, 0, 5, 2, 0}),
               v = from_vector<double>({3, 1, 2}, {0, 2, 1, 0, 6, 8});
  const auto scale = [&](LipschitzNorm norm, bool loops = false) {
    return lipschitz_scale(graph, q, k, v, norm, loops).to_vector<double>();
  };
  // u = sqrt(25 + 1 + 4), v = 5, w = 10.
  for (const double s : scale({})) CHECK(s == doctest::Approx(1 / (std::sqrt(30.0) * 10)));
  // Node 1: sources 0 and 2, v = 2 and w = 10; node 2: source 1, v = 5 and w = 1.
  const auto near = scale({.scope = NormScope::neighbourhood, .query_norm = QueryNorm::per_node});
  CHECK(near[1] == doctest::Approx(1.0 / 20));  // v w
  CHECK(near[2] == doctest::Approx(1.0 / 10));  // u v
  // With its loop node 1 has a key of 5.
  CHECK(scale({.scope = NormScope::neighbourhood, .query_norm = QueryNorm::per_node}, true)[1] ==
        doctest::Approx(1.0 / 50));
  // u^2 = 2 |q_1|^2 + |q_2|^2 over the edges.
  const auto reference = scale(LipschitzNorm::reference_code_2022(ScoreKind::dot_uvw));
  CHECK(reference[1] == doctest::Approx(1 / (std::sqrt(2.0) * std::sqrt(6.0) * 10)));
  CHECK(reference[2] == doctest::Approx(1 / (std::sqrt(2.0) * std::sqrt(6.0) * 5)));
}

TEST_CASE("certificate: no Jacobian of normalised attention is larger, in any scope") {
  Generator rng{6};
  for (const bool loops : {false, true}) {
    for (const Graph& graph : {random_graph(6, 16, 5), complete_graph(4)}) {
      const std::int64_t n = graph.num_nodes();
      for (LipschitzNorm norm : all_norms()) {
        if (norm.joint || norm.query_norm == QueryNorm::edge_expanded) {
          CHECK_FALSE(certificate(graph, ScoreKind::dot_uvw, norm, loops).has_value());
          continue;
        }
        for (const double alpha : {1.0, 3.0}) {
          norm.alpha = alpha;
          const double bound = *certificate(graph, ScoreKind::dot_uvw, norm, loops);
          double most = 0;
          for (const auto& size : kSizes) {
            const Tensor qkv = stretched(randn({3, n, 2, 2}, f64, rng), size);
            most = std::max(most, spectral_norm(test::jacobian(qkv, [&](const Tensor& at) {
                              return attention(graph, at, &norm, loops);
                            })));
          }
          CHECK(most <= bound);
          CHECK(most > 0.1 * bound / std::sqrt(static_cast<double>(n)));
        }
      }
    }
  }
  // Every node has all n of a complete graph: L_V = sqrt(n min(1, e^2 / n)).
  CHECK(*certificate(complete_graph(20), ScoreKind::dot_uvw, {}, false) ==
        doctest::Approx(std::exp(1.0) + 2));
  CHECK(*certificate(complete_graph(20), ScoreKind::linear_uv, {}, false) ==
        doctest::Approx(std::exp(1.0) + std::sqrt(2.0)));
  CHECK(*certificate(complete_graph(3), ScoreKind::dot_uvw, {.scope = NormScope::neighbourhood},
                     false) == doctest::Approx(std::sqrt(3.0) + 2 * std::sqrt(2.0)));
}

TEST_CASE("certificate: linear and generic scores") {
  Generator rng{7};
  const Graph graph = random_graph(6, 16, 5);
  const Tensor w = randn({6, 1, 3}, f64, rng);
  for (const NormScope scope : {NormScope::global, NormScope::neighbourhood}) {
    const LipschitzNorm norm{.scope = scope, .alpha = 2};
    const double bound = *certificate(graph, ScoreKind::linear_uv, norm, false);
    for (const double size : {0.01, 1.0, 100.0}) {
      const Tensor x = mul(randn({6, 1, 3}, f64, rng), size);
      const auto f = [&](const Tensor& at) {
        return dot_attention(graph, w, at, at, lipschitz_scale_linear(graph, w, at, norm, false),
                             {}, Mode::eval());
      };
      CHECK(spectral_norm(test::jacobian(x, f)) <= bound);
    }
  }
  // s_ij = <w_i, x_j> as scores of which only the constant |w| is known.
  const LipschitzNorm norm{.alpha = 2};
  const double bound = *certificate(graph, ScoreKind::generic, norm, false);
  const double constant = row_norms(reshape(w, {18})).item();
  for (const double given : {constant, 10 * constant}) {
    const Tensor x = randn({6, 1, 3}, f64, rng);
    const auto f = [&](const Tensor& at) {
      const Tensor scores = lipschitz_scores(graph, edge_dot(graph, at, w), at, given, norm);
      CHECK(largest(scores) <= 2);
      return aggregate(graph, at, edge_softmax(graph, scores));
    };
    CHECK(spectral_norm(test::jacobian(x, f)) <= bound);
  }
}

TEST_CASE("plain dot-product attention is not Lipschitz, the normalised one is") {
  const Graph graph = complete_graph(2);
  const LipschitzNorm norm;
  const double bound = std::sqrt(3.0) * *certificate(graph, ScoreKind::dot_uvw, norm, false);
  for (const auto& [t, expected] : {std::pair{10.0, 25.5}, std::pair{100.0, 2500.5}}) {
    // q = k = v = x = (0, t): the derivative of o_1 by x_1 is 1/2 + t^2 / 4.
    const Tensor x = from_vector<double>({2, 1, 1}, {0, t});
    const auto plain = [&](const Tensor& at) {
      return dot_attention(graph, at, at, at, {}, {}, Mode::eval());
    };
    CHECK(test::jacobian(x, plain).data<double>()[0] == doctest::Approx(expected));
    const auto normalised = [&](const Tensor& at) {
      return dot_attention(graph, at, at, at, lipschitz_scale(graph, at, at, at, norm, false), {},
                           Mode::eval());
    };
    // (x to (x, x, x) has norm sqrt3.)
    CHECK(spectral_norm(test::jacobian(x, normalised)) <= bound);
  }
}

TEST_CASE("the spectral readings blow up where LipschitzNorm does not") {
  Generator rng{9};
  const std::int64_t n = 4, d = 3;
  const Graph graph = complete_graph(n);
  const Tensor qkv = randn({3, n, 1, d}, f64, rng);
  const auto parts = [&](const Tensor& at) {
    const Tensor rows = reshape(at, {3, n, d});
    return std::array{squeeze(slice(rows, 0, 0, 1), 0), squeeze(slice(rows, 0, 1, 2), 0),
                      squeeze(slice(rows, 0, 2, 3), 0)};
  };
  const LipschitzNorm norm;
  const auto inside = [&](const Tensor& at) {
    const auto [q, k, v] = parts(at);
    return matmul(softmax(SpectralScoreNorm()(matmul(q, k, {.transpose_b = true}))), v);
  };
  const auto outside = [&](const Tensor& at) {
    const auto [q, k, v] = parts(at);
    const Tensor z = matmul(q, k, {.transpose_b = true});
    return SpectralOutputNorm()(z, matmul(softmax(z), v));
  };
  const auto lipschitz = [&](const Tensor& at) { return attention(graph, at, &norm, false); };
  const auto growth = [&](const auto& f) {  // of the Jacobian when q and k shrink tenfold
    const auto at = [&](double t) {
      return spectral_norm(test::jacobian(stretched(qkv, {t, t, 1}), f));
    };
    return at(1e-3) / at(1e-2);
  };
  CHECK(growth(inside) == doctest::Approx(10).epsilon(0.02));
  CHECK(growth(outside) == doctest::Approx(1000).epsilon(0.02));
  CHECK(growth(lipschitz) == doctest::Approx(1).epsilon(0.02));
  CHECK_FALSE(SpectralScoreNorm().certificate().has_value());
  CHECK_FALSE(SpectralOutputNorm().certificate().has_value());

  // Scores of edges give the same as their dense matrix.
  const auto of_edges = [&](const Tensor& at) {
    const auto [q, k, v] = parts(at);
    const Tensor scores = unsqueeze(edge_dot(graph, k, q), 1);
    const Tensor alpha = edge_softmax(graph, SpectralScoreNorm()(graph, scores));
    const Tensor out = aggregate(graph, unsqueeze(v, 1), alpha);
    return SpectralOutputNorm()(graph, scores, out);
  };
  const auto dense = [&](const Tensor& at) {
    const auto [q, k, v] = parts(at);
    return SpectralOutputNorm()(matmul(q, k, {.transpose_b = true}), inside(at));
  };
  CHECK(test::distance(reshape(of_edges(qkv), {n, d}), dense(qkv)) < 1e-10);
  CHECK(test::distance(test::jacobian(qkv, of_edges), test::jacobian(qkv, dense)) < 1e-8);
}

TEST_CASE("lipschitz_scale: detached, and errors") {
  Generator rng{10};
  const Graph graph = random_graph(5, 12, 2);
  const Tensor q = randn({5, 2, 3}, f64, rng);
  Tape tape;
  const Tensor x = tape.watch(q);
  const auto gradient = [&](bool detach) {
    const Tensor scale = lipschitz_scale(graph, x, x, x, {.detach = detach}, false);
    return largest(tape.grad(sum(mul(scale, sum(x, {2}))), {x}, {}, {.retain = true})[0] -
                   mul(broadcast_to(unsqueeze(scale, 2), x.shape()).detach(), 1.0));
  };
  CHECK(gradient(true) < 1e-15);
  CHECK(gradient(false) > 1e-3);
  CHECK_THROWS_WITH_AS(lipschitz_scale(graph, q, q, randn({5, 2, 2}, f64, rng), {}, false),
                       "lipschitz_scale: tensors must be (5, heads, features) all, got (5, 2, 3) "
                       "and (5, 2, 2)",
                       Error);
  CHECK_THROWS_WITH_AS(lipschitz_scale(graph, q, q, q, {.kappa = 0}, false),
                       "lipschitz_scale: kappa must be positive and finite, got 0", Error);
}

}  // namespace lipgrad
