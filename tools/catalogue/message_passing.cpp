#include <lipgrad/graph/message_passing.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {
namespace {

struct GraphKind {
  const char* name;
  Graph graph;
  GradcheckOptions options = {};
};

std::vector<GraphKind> graph_kinds() {
  // Large: a node that has edges to and from all others.
  const Graph star = graph_of(280, 200);
  return {{"normal", graph_of(9, 20)},
          {"one row", Graph(2, from_values<std::int64_t>({3, 2}, {0, 0, 1, 0, 1, 0}))},
          {"empty", graph_of(0, 0), {.zero_gradient = true}},
          {"zero rows", Graph(3, from_values<std::int64_t>({2, 2}, {2, 0, 1, 0}))},
          {"large", Graph(280, star.sources(), star.destinations(), {.symmetrize = true})}};
}

// Inputs of the given sizes, whose first is N or E. Further forms of an op are checked on two kinds
// of graphs.
template <class F>
void add(Catalogue& c, const char* op, const char* form, std::vector<Shape> shapes,
         std::vector<bool> of_edges, F f) {
  for (const GraphKind& k : graph_kinds()) {
    const Graph graph = k.graph;
    if (form[0] != 0 && k.name != std::string("normal") && k.name != std::string("large")) continue;
    c.add(
        op, form[0] == 0 ? k.name : std::string(k.name) + ", " + form,
        [=](Generator& rng) {
          std::vector<Tensor> inputs;
          for (std::size_t i = 0; i < shapes.size(); ++i)
            inputs.push_back(randn(
                shapes[i].with(0, of_edges[i] ? graph.num_edges() : graph.num_nodes()), f64, rng));
          return inputs;
        },
        [=](Inputs in) { return f(graph.to(in[0].device()), in); }, k.options);
  }
}

}  // namespace

void add_message_passing(Catalogue& c) {
  const Shape row{0, 3}, heads{0, 2, 5}, wide{0, 37};
  const auto weigh = [](Reduce reduce) {
    return [reduce](const Graph& g, Inputs in) { return aggregate(g, in[0], in[1], reduce); };
  };
  const auto gather_from = [](const Graph& g, Inputs in) { return gather_sources(g, in[0]); };
  const auto gather_to = [](const Graph& g, Inputs in) { return gather_destinations(g, in[0]); };
  const auto added = [](const Graph& g, Inputs in) { return edge_add(g, in[0], in[1]); };
  const auto dots = [](const Graph& g, Inputs in) { return edge_dot(g, in[0], in[1]); };
  const auto softmax = [](const Graph& g, Inputs in) { return edge_softmax(g, in[0]); };
  const auto largest = [](const Graph& g, Inputs in) { return neighbor_max(g, in[0]); };
  const auto plain = [](Reduce reduce) {
    return [reduce](const Graph& g, Inputs in) { return aggregate(g, in[0], {}, reduce); };
  };
  add(c, "gather_sources", "", {heads}, {false}, gather_from);
  add(c, "gather_sources", "wide", {wide}, {false}, gather_from);
  add(c, "gather_destinations", "", {row}, {false}, gather_to);
  add(c, "edge_add", "", {row, row}, {false, false}, added);
  add(c, "edge_add", "wide", {wide, wide}, {false, false}, added);
  add(c, "edge_dot", "", {row, row}, {false, false}, dots);
  add(c, "edge_dot", "heads", {heads, heads}, {false, false}, dots);
  add(c, "edge_dot", "eight features", {{0, 4, 8}, {0, 4, 8}}, {false, false}, dots);
  add(c, "edge_softmax", "", {row}, {true}, softmax);
  add(c, "edge_softmax", "no heads", {{0}}, {true}, softmax);
  add(c, "edge_softmax", "four heads", {{0, 4}}, {true}, softmax);
  add(c, "edge_softmax", "wide", {wide}, {true}, softmax);
  add(c, "aggregate", "", {row, {0}}, {false, true}, weigh(Reduce::sum));
  add(c, "aggregate", "heads", {heads, {0, 2}}, {false, true}, weigh(Reduce::sum));
  add(c, "aggregate", "heads in a row", {{0, 32}, {0, 4}}, {false, true}, weigh(Reduce::sum));
  add(c, "aggregate", "one weight", {heads, {0}}, {false, true}, weigh(Reduce::sum));
  add(c, "aggregate", "mean", {heads, {0, 2}}, {false, true}, weigh(Reduce::mean));
  add(c, "aggregate", "no weights", {row}, {false}, plain(Reduce::sum));
  add(c, "aggregate", "mean, no weights", {heads}, {false}, plain(Reduce::mean));
  add(c, "aggregate", "max", {heads}, {false}, plain(Reduce::max));
  add(c, "neighbor_max", "", {row}, {false}, largest);
  add(c, "neighbor_max", "wide", {wide}, {false}, largest);
}

}  // namespace lipgrad::catalogue
