#include <lipgrad/graph/subgraph.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/ops/index.h>

namespace lipgrad {
namespace {

using Longs = std::vector<std::int64_t>;

Tensor ids(const Longs& values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values);
}

Graph random_graph(std::int64_t nodes, std::int64_t edges, std::uint64_t seed) {
  Generator rng(seed);
  return Graph(nodes, rand_int({edges, 2}, nodes, rng));
}

// (destination, source, number in the original), straight from the definition.
std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> expected(const Graph& graph,
                                                                           const Longs& nodes) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> edges;
  const auto to = graph.destinations().to_vector<std::int32_t>(),
             from = graph.sources().to_vector<std::int32_t>();
  for (std::size_t k = 0; k < to.size(); ++k) {
    const auto i = std::find(nodes.begin(), nodes.end(), to[k]),
               j = std::find(nodes.begin(), nodes.end(), from[k]);
    if (i != nodes.end() && j != nodes.end())
      edges.emplace_back(i - nodes.begin(), j - nodes.begin(), k);
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> edges_of(const Graph& graph) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> edges;
  const auto to = graph.destinations().to_vector<std::int32_t>(),
             from = graph.sources().to_vector<std::int32_t>();
  const auto order = graph.edge_order().to_vector<std::int64_t>();
  for (std::size_t k = 0; k < to.size(); ++k) edges.emplace_back(to[k], from[k], order[k]);
  return edges;
}

TEST_CASE("an induced subgraph has the edges among its nodes, in any order of the nodes") {
  const Graph graph = random_graph(1500, 9000, 4);
  Generator rng{7};
  const Longs shuffled = rand_permutation(1500, rng).to_vector<std::int64_t>();
  for (const std::int64_t count : {1500, 700, 30, 1, 0}) {
    Longs nodes(shuffled.begin(), shuffled.begin() + count);
    for (const bool ascending : {false, true}) {
      if (ascending) std::sort(nodes.begin(), nodes.end());
      const Graph part = induced_subgraph(graph, ids(nodes));
      CHECK(part.num_nodes() == count);
      CHECK(edges_of(part) == expected(graph, nodes));
    }
  }
  // All nodes in their order: the graph itself.
  const Graph same = induced_subgraph(graph, arange(1500));
  CHECK(bitwise_equal(same.pattern().offsets(), graph.pattern().offsets()));
  CHECK(bitwise_equal(same.sources(), graph.sources()));
  CHECK(bitwise_equal(same.edge_order(), arange(graph.num_edges())));
}

TEST_CASE("repeated edges, self-loops and isolated nodes of a subgraph") {
  //                          0 -> 1, 0 -> 1, 1 -> 1, 2 -> 1, 1 -> 0; 3 and 4 have none
  const Graph graph(5, ids({0, 0, 1, 2, 1}), ids({1, 1, 1, 1, 0}));
  const Graph pair = induced_subgraph(graph, from_vector<std::int32_t>({2}, {1, 0}));
  CHECK(edges_of(pair) == expected(graph, {1, 0}));
  CHECK(pair.num_edges() == 4);
  const Graph isolated = induced_subgraph(graph, ids({4, 2, 3}));
  CHECK(isolated.num_nodes() == 3);
  CHECK(isolated.num_edges() == 0);
  CHECK(induced_subgraph(graph, ids({})).num_nodes() == 0);
  CHECK(induced_subgraph(Graph(), ids({})).num_nodes() == 0);
}

TEST_CASE("edge attributes follow their edges through a subgraph of a subgraph") {
  const Graph graph = random_graph(200, 4000, 9);
  Generator rng{1};
  const Tensor weight = randn({graph.num_edges(), 3}, f32, rng);
  const Graph part = induced_subgraph(graph, arange(120));
  const Graph inner = induced_subgraph(part, arange(50));
  const Tensor by_steps = gather(gather(weight, part.edge_order()), inner.edge_order());
  const Tensor at_once = gather(weight, induced_subgraph(graph, arange(50)).edge_order());
  CHECK(inner.num_edges() > 0);
  CHECK(bitwise_equal(by_steps, at_once));
}

TEST_CASE("subgraphs do not depend on the number of threads") {
  const Graph graph = random_graph(5000, 40000, 2);
  Generator rng{3};
  const Tensor order = rand_permutation(5000, rng);
  const int threads = num_threads();
  set_num_threads(1);
  const Graph one = induced_subgraph(graph, order);
  set_num_threads(2);
  const Graph two = induced_subgraph(graph, order);
  set_num_threads(threads);
  CHECK(bitwise_equal(one.sources(), two.sources()));
  CHECK(bitwise_equal(one.edge_order(), two.edge_order()));
}

TEST_CASE("what subgraphs refuse") {
  const Graph graph = random_graph(10, 20, 1);
  CHECK_THROWS_WITH_AS(induced_subgraph(graph, ids({1, 10})),
                       "induced_subgraph: node 10 at 1; node ids must be in [0, 10)", Error);
  CHECK_THROWS_WITH_AS(induced_subgraph(graph, ids({-1})),
                       "induced_subgraph: node -1 at 0; node ids must be in [0, 10)", Error);
  CHECK_THROWS_WITH_AS(induced_subgraph(graph, ids({3, 4, 3})),
                       "induced_subgraph: node 3 is named twice, at 0 and 2", Error);
  CHECK_THROWS_AS(induced_subgraph(graph, ones({3})), Error);
  const std::vector<Graph> two{graph, graph};
  CHECK_THROWS_WITH_AS(induced_subgraph(Graph::batch(two), ids({1})),
                       doctest::Contains("got a batch of 2"), Error);
}

TEST_CASE("a part of a data set has the rows, labels and split of its nodes") {
  const NodeData data = generated_citation_graph({.num_nodes = 200,
                                                  .num_edges = 600,
                                                  .num_features = 120,
                                                  .num_classes = 3,
                                                  .train_per_class = 9,
                                                  .num_val = 40,
                                                  .num_test = 60});
  Generator rng{5};
  const Longs order = rand_permutation(200, rng).to_vector<std::int64_t>();
  const Longs nodes(order.begin(), order.begin() + 90);
  for (const bool sparse : {true, false}) {
    NodeData whole = data;
    if (sparse != whole.features.is_sparse())
      whole.features = sparse ? Features(CsrMatrix::from_dense(whole.features.dense()))
                              : Features(whole.features.to_dense());
    const NodeData part = induced_data(whole, ids(nodes));
    check_node_data(part);
    CHECK(part.features.is_sparse() == sparse);
    CHECK(bitwise_equal(part.features.to_dense(), gather(whole.features.to_dense(), ids(nodes))));
    CHECK(bitwise_equal(part.labels, gather(whole.labels, ids(nodes))));
    CHECK(part.num_classes == 3);
    for (Tensor NodeData::*split : {&NodeData::train, &NodeData::val, &NodeData::test}) {
      const Longs original = (whole.*split).to_vector<std::int64_t>();
      std::set<std::int64_t> expected, got;
      for (const std::int64_t node : nodes)
        if (std::count(original.begin(), original.end(), node)) expected.insert(node);
      for (const std::int64_t place : (part.*split).to_vector<std::int64_t>())
        got.insert(nodes[static_cast<std::size_t>(place)]);
      CHECK(!expected.empty());
      CHECK(got == expected);
    }
  }
}

TEST_CASE("a graph from sorted rows is checked") {
  const auto pattern = [](const Longs& offsets, const std::vector<std::int32_t>& columns) {
    return CsrPattern(2, 2, ids(offsets),
                      from_vector({static_cast<std::int64_t>(columns.size())}, columns));
  };
  const Graph graph = Graph::from_sorted(pattern({0, 2, 3}, {0, 1, 0}), ids({5, -1, 2}), 6);
  CHECK(graph.num_edges() == 3);
  CHECK(graph.edge_order().to_vector<std::int64_t>() == Longs{5, -1, 2});
  CHECK_THROWS_WITH_AS(Graph::from_sorted(pattern({0, 2, 3}, {1, 0, 0}), ids({0, 1, 2}), 3),
                       "graph: the sources of the edges into node 0 descend from 1 to 0", Error);
  CHECK_THROWS_WITH_AS(Graph::from_sorted(pattern({0, 2, 3}, {0, 1, 0}), ids({0, 1, 3}), 3),
                       "graph: edge 2 has the place 3 in a list of 3", Error);
  CHECK_THROWS_AS(Graph::from_sorted(pattern({0, 2, 3}, {0, 1, 0}), ids({0, 1}), 3), Error);
  CHECK_THROWS_AS(Graph::from_sorted(CsrPattern(), ids({}), 0), Error);
}

}  // namespace
}  // namespace lipgrad
