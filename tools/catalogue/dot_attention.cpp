#include <lipgrad/graph/dot_attention.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// Repeated edges, self-loops, a node that all others point to, and nodes 3 and 7 without edges.
Graph graph_of(std::int64_t nodes, std::int64_t edges) {
  Generator rng{17};
  const Tensor drawn = rand_int({edges, 2}, nodes > 0 ? nodes : 1, rng);
  std::vector<std::int64_t> ends;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (from == 3 || from == 7 || to == 3 || to == 7) return;
    ends.push_back(from);
    ends.push_back(to);
  };
  for (std::int64_t k = 0; k < edges; ++k) {
    const std::int64_t from = drawn.data<std::int64_t>()[2 * k],
                       to = drawn.data<std::int64_t>()[2 * k + 1];
    add(from, to);
    if (k % 5 == 0) add(from, to);
    if (k % 7 == 0) add(from, from);
  }
  for (std::int64_t node = 1; node < nodes; ++node) add(node, 0);
  const auto count = static_cast<std::int64_t>(ends.size() / 2);
  return Graph(nodes, from_vector({count, 2}, ends));
}

void add_attention(Catalogue& c, const char* kind, const Graph& graph, std::int64_t heads,
                   std::int64_t features, DotAttentionOptions options, bool scaled = false,
                   std::int64_t edge_features = 0, GradcheckOptions check = {}) {
  const std::int64_t nodes = graph.num_nodes(), edges = graph.num_edges();
  c.add_many(
      "dot_attention", kind,
      [=](Generator& rng) {
        std::vector<Tensor> inputs;
        for (int i = 0; i < 3; ++i) inputs.push_back(randn({nodes, heads, features}, f64, rng));
        if (scaled) inputs.push_back(randn({nodes, heads}, f64, rng));
        if (edge_features > 0) {
          inputs.push_back(randn({nodes, heads, edge_features}, f64, rng));
          inputs.push_back(randn({edges, edge_features}, f64, rng));
        }
        return inputs;
      },
      [=](Inputs in) {
        Generator rng{5};  // the same mask in every call
        const Mode mode = options.dropout > 0 ? Mode::train(rng) : Mode::eval();
        const Graph here = graph.to(in[0].device());
        const Tensor scale = scaled ? in[3] : Tensor();
        if (edge_features == 0)
          return std::vector<Tensor>{
              dot_attention(here, in[0], in[1], in[2], scale, options, mode)};
        const std::size_t at = scaled ? 4 : 3;
        const EdgeAttention y = dot_attention(here, in[0], in[1], in[2], scale, in[at], in[at + 1],
                                              options, mode);
        return std::vector<Tensor>{y.out, y.edge_sum};
      },
      check);
}

}  // namespace

void add_dot_attention(Catalogue& c) {
  add_attention(c, "normal", graph_of(9, 20), 2, 3, {});
  add_attention(c, "scaled", graph_of(9, 20), 2, 3, {.factor = 0.7}, true);
  add_attention(c, "self-loops, eight heads", graph_of(12, 30), 8, 8, {.self_loops = true}, true);
  add_attention(c, "mean of heads", graph_of(9, 20), 3, 5, {.mean_heads = true}, true);
  add_attention(c, "dropout", graph_of(9, 30), 4, 3, {.self_loops = true, .dropout = 0.4});
  add_attention(c, "dropout, mean of heads", graph_of(9, 30), 4, 3,
                {.dropout = 0.4, .mean_heads = true}, true);
  add_attention(c, "zero rows", graph_of(9, 12), 1, 7, {});  // nodes 3 and 7
  add_attention(c, "empty", graph_of(0, 0), 2, 3, {}, true, 0, {.zero_gradient = true});
  add_attention(c, "large", graph_of(300, 2000), 4, 8, {}, true);
  add_attention(c, "edge features", graph_of(9, 20), 2, 3, {}, true, 5);
  add_attention(c, "edge features, dropout, mean of heads", graph_of(9, 30), 3, 4,
                {.self_loops = true, .dropout = 0.4, .mean_heads = true}, true, 3);
  add_attention(c, "edge features, one head", graph_of(9, 12), 1, 7, {}, false, 1);
  add_attention(c, "edge features, large", graph_of(300, 2000), 4, 8, {.self_loops = true}, true,
                8);
}

}  // namespace lipgrad::catalogue
