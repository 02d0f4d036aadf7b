#include <lipgrad/graph/lipschitz_norm.h>
#include <lipgrad/graph/spectral_attention_norm.h>
#include <lipgrad/ops/elementwise.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {
namespace {

// q, k and v times `size` each: which of u v, u w and v w is the largest follows.
void add_scale(Catalogue& c, const char* kind, std::array<double, 3> size,
               const LipschitzNorm& norm, bool self_loops = false, std::int64_t nodes = 9) {
  const Graph graph = graph_of(nodes, nodes < 9 ? 0 : 20);
  c.add(
      "lipschitz_scale", kind,
      [=](Generator& rng) {
        std::vector<Tensor> inputs;
        for (int i = 0; i < 3; ++i) inputs.push_back(randn({nodes, 2, 3}, f64, rng));
        return inputs;
      },
      [=](Inputs in) {
        return lipschitz_scale(graph.to(in[0].device()), mul(in[0], size[0]), mul(in[1], size[1]),
                               mul(in[2], size[2]), norm, self_loops);
      },
      // Of one input where it is not in the largest branch.
      {.zero_gradient = true});
}

}  // namespace

void add_lipschitz_norm(Catalogue& c) {
  c.add(
      "row_norms", "normal",
      [](Generator& rng) {
        return std::vector{randn({5, 2, 3}, f64, rng)};
      },
      [](Inputs in) { return row_norms(in[0]); });
  c.add(
      "row_norms", "one row",
      [](Generator& rng) {
        return std::vector{randn({1, 3}, f64, rng)};
      },
      [](Inputs in) { return row_norms(in[0]); });
  c.add(
      "row_norms", "empty",
      [](Generator& rng) {
        return std::vector{randn({0, 3}, f64, rng)};
      },
      [](Inputs in) { return row_norms(in[0]); }, {.zero_gradient = true});

  add_scale(c, "normal", {1, 1, 1}, {});
  add_scale(c, "one row", {1, 2, 1}, {}, true, 1);
  add_scale(c, "empty", {1, 1, 1}, {}, false, 0);
  for (const QueryNorm query : {QueryNorm::global, QueryNorm::per_node, QueryNorm::edge_expanded}) {
    for (const NormScope scope : {NormScope::global, NormScope::neighbourhood}) {
      const std::string of = std::string(query == QueryNorm::global     ? "global u"
                                         : query == QueryNorm::per_node ? "u per node"
                                                                        : "edge-expanded u") +
                             (scope == NormScope::global ? "" : ", neighbourhoods");
      LipschitzNorm norm{.scope = scope, .query_norm = query, .eps = 1e-2};
      // Nodes without edges have no v and w: their denominator is eps.
      add_scale(c, (of + ", u v").c_str(), {3, 2, 0.2}, norm, true);
      add_scale(c, (of + ", u w").c_str(), {3, 0.2, 2}, norm, true);
      add_scale(c, (of + ", v w").c_str(), {0.1, 3, 3}, norm, true);
    }
  }
  add_scale(c, "joint u, scaled before, kappa and alpha", {1, 1, 1},
            {.joint = true, .kappa = 2, .pre_scale = true, .alpha = 3});

  // The scores' own norm is the larger one, or that of x.
  const auto add_scores = [&](const char* kind, std::int64_t nodes, double lipschitz) {
    const Graph graph = graph_of(nodes, nodes < 9 ? nodes : 20);
    c.add(
        "lipschitz_scores", kind,
        [=](Generator& rng) {
          return std::vector{randn({graph.num_edges(), 2}, f64, rng),
                             randn({nodes, 2, 3}, f64, rng)};
        },
        [=](Inputs in) {
          return lipschitz_scores(graph.to(in[0].device()), in[0], in[1], lipschitz,
                                  {.kappa = 2, .alpha = 3, .eps = 1e-2});
        },
        {.zero_gradient = true});
  };
  add_scores("normal", 9, 0.01);
  add_scores("norm of x", 9, 10);
  add_scores("one row", 1, 0.01);
  add_scores("empty", 0, 1);

  const auto add_spectral = [&](const char* kind, std::int64_t nodes) {
    const Graph graph = graph_of(nodes, nodes < 9 ? nodes : 20);
    c.add(
        "edge_spectral_norms", kind,
        [=](Generator& rng) {
          return std::vector{randn({graph.num_edges(), 2}, f64, rng)};
        },
        [=](Inputs in) { return edge_spectral_norms(graph.to(in[0].device()), in[0]); },
        {.zero_gradient = nodes == 0});
  };
  add_spectral("normal", 9);
  add_spectral("one row", 1);
  add_spectral("empty", 0);

  const auto add_linear = [&](const char* kind, std::int64_t nodes, bool joint) {
    const Graph graph = graph_of(nodes, nodes < 9 ? 0 : 20);
    c.add(
        "lipschitz_scale_linear", kind,
        [=](Generator& rng) {
          return std::vector{randn({nodes, 2, 3}, f64, rng), randn({nodes, 2, 3}, f64, rng)};
        },
        [=](Inputs in) {
          return lipschitz_scale_linear(graph.to(in[0].device()), in[0], in[1], {.joint = joint},
                                        false);
        },
        {.zero_gradient = nodes == 0});
  };
  add_linear("normal", 9, false);
  add_linear("joint", 9, true);
  add_linear("one row", 1, false);
  add_linear("empty", 0, false);
}

}  // namespace lipgrad::catalogue
