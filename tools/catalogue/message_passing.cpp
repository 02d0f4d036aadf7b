#include <lipgrad/graph/message_passing.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// Repeated edges, self-loops, a node that all others point to and one that points to all, and, with
// more than three nodes, node 3 without edges.
Graph graph_of(std::int64_t nodes, std::int64_t edges) {
  Generator rng{23};
  const Tensor drawn = rand_int({edges, 2}, nodes > 0 ? nodes : 1, rng);
  std::vector<std::int64_t> ends;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (nodes > 3 && (from == 3 || to == 3)) return;
    ends.push_back(from);
    ends.push_back(to);
  };
  for (std::int64_t k = 0; k < edges; ++k) {
    const std::int64_t from = drawn.data<std::int64_t>()[2 * k],
                       to = drawn.data<std::int64_t>()[2 * k + 1];
    add(from, to);
    if (k % 4 == 0) add(from, to);
  }
  for (std::int64_t node = 1; node < nodes; ++node) {
    add(node, 0);
    add(1, node);
  }
  const auto count = static_cast<std::int64_t>(ends.size() / 2);
  return Graph(nodes, from_vector({count, 2}, ends));
}

struct GraphKind {
  const char* name;
  Graph graph;
  GradcheckOptions options = {};
};

// One row: three edges into one of two nodes.
std::vector<GraphKind> graph_kinds() {
  return {{"normal", graph_of(7, 12)},
          {"one row", Graph(2, from_values<std::int64_t>({3, 2}, {0, 0, 1, 0, 1, 0}))},
          {"empty", graph_of(0, 0), {.zero_gradient = true}},
          {"zero rows", Graph(3, from_values<std::int64_t>({2, 2}, {2, 0, 1, 0}))},
          {"large", graph_of(600, 2000)}};
}

}  // namespace

void add_message_passing(Catalogue& c) {
  for (const GraphKind& k : graph_kinds()) {
    const Graph graph = k.graph;
    const std::int64_t nodes = graph.num_nodes();
    const auto on = [graph](Inputs in) { return graph.to(in[0].device()); };
    for (const std::int64_t features : {std::int64_t{3}, std::int64_t{37}}) {
      const std::string kind = features == 3 ? k.name : std::string(k.name) + ", wide";
      c.add(
          "neighbor_max", kind,
          [=](Generator& rng) {
            return std::vector<Tensor>{randn({nodes, features}, f64, rng)};
          },
          [=](Inputs in) { return neighbor_max(on(in), in[0]); }, k.options);
    }
  }
}

}  // namespace lipgrad::catalogue
