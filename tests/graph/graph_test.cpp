#include <lipgrad/graph/graph.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/philox.h>
#include <support/errors.h>

namespace lipgrad {
namespace {

using Ids = std::vector<std::int32_t>;
using Places = std::vector<std::int64_t>;

using test::error_of;

Ids ids(const Tensor& x) { return x.to_vector<std::int32_t>(); }
Places longs(const Tensor& x) { return x.to_vector<std::int64_t>(); }

struct RandomEdges {
  std::int64_t nodes;
  Ids source, destination;
};

RandomEdges random_edges(std::uint64_t seed, std::int64_t nodes, std::int64_t edges) {
  RandomEdges list{nodes, {}, {}};
  for (std::int64_t i = 0; i < edges; ++i) {
    list.source.push_back(static_cast<std::int32_t>(philox_word(seed, 0, i) % nodes));
    list.destination.push_back(static_cast<std::int32_t>(philox_word(seed, 1, i) % nodes));
  }
  return list;
}

// (destination, source, place in the list), straight from the definition of the options.
std::vector<std::tuple<std::int32_t, std::int32_t, std::int64_t>> expected_edges(
    const RandomEdges& list, const GraphOptions& options) {
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int64_t>> edges;
  std::vector<int> loops(list.nodes);
  for (std::size_t i = 0; i < list.source.size(); ++i) {
    const std::int32_t u = list.source[i], v = list.destination[i];
    if (u == v) {
      if (options.self_loops == SelfLoops::remove || options.self_loops == SelfLoops::add) continue;
      loops[u] = 1;
    }
    edges.emplace_back(v, u, i);
    if (options.symmetrize && u != v) edges.emplace_back(u, v, i);
  }
  if (options.self_loops == SelfLoops::add || options.self_loops == SelfLoops::add_missing)
    for (std::int32_t u = 0; u < list.nodes; ++u)
      if (!loops[u]) edges.emplace_back(u, u, -1);
  std::stable_sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  if (options.remove_duplicates)
    edges.erase(std::unique(edges.begin(), edges.end(),
                            [](const auto& a, const auto& b) {
                              return std::get<0>(a) == std::get<0>(b) &&
                                     std::get<1>(a) == std::get<1>(b);
                            }),
                edges.end());
  return edges;
}

}  // namespace

TEST_CASE("graph: a small one by hand") {
  // 0 -> 2, 1 -> 2, 2 -> 0, 2 -> 2, 1 -> 2 again; node 3 alone.
  const Ids source{1, 2, 0, 2, 1}, destination{2, 0, 2, 2, 2};
  const Graph graph(4, source, destination);
  CHECK(graph.num_nodes() == 4);
  CHECK(graph.num_edges() == 5);
  CHECK(longs(graph.pattern().offsets()) == Places{0, 1, 1, 5, 5});
  CHECK(ids(graph.sources()) == Ids{2, 0, 1, 1, 2});
  CHECK(ids(graph.destinations()) == Ids{0, 2, 2, 2, 2});
  CHECK(longs(graph.edge_order()) == Places{1, 2, 0, 4, 3});
  CHECK(longs(graph.in_degrees()) == Places{1, 0, 4, 0});
  CHECK(longs(graph.out_degrees()) == Places{1, 2, 2, 0});
  CHECK(graph.num_self_loops() == 1);
  CHECK(longs(graph.reverse().offsets()) == Places{0, 1, 3, 5, 5});
  CHECK(ids(graph.reverse().columns()) == Ids{2, 2, 2, 0, 2});
  CHECK(longs(graph.reverse_order()) == Places{1, 2, 3, 0, 4});
  CHECK(graph.num_graphs() == 1);
  CHECK(ids(graph.graph_ids()) == Ids{0, 0, 0, 0});
  const Graph copy = graph;
  CHECK(copy.pattern() == graph.pattern());
}

TEST_CASE("graph: every combination of options agrees with its definition") {
  for (const auto& [nodes, edges] : {std::pair{1, 5}, {7, 0}, {7, 20}, {30, 40}, {20, 300}})
    for (bool symmetrize : {false, true})
      for (bool unique : {false, true})
        for (SelfLoops loops :
             {SelfLoops::keep, SelfLoops::remove, SelfLoops::add, SelfLoops::add_missing}) {
          const GraphOptions options{symmetrize, unique, loops};
          const RandomEdges list = random_edges(nodes * 1000 + edges, nodes, edges);
          const Graph graph(nodes, list.source, list.destination, options);
          const auto expected = expected_edges(list, options);
          REQUIRE(graph.num_edges() == static_cast<std::int64_t>(expected.size()));
          const Ids source = ids(graph.sources()), destination = ids(graph.destinations());
          const Places order = longs(graph.edge_order());
          int wrong = 0;
          for (std::size_t k = 0; k < expected.size(); ++k)
            wrong += expected[k] != std::tuple(destination[k], source[k], order[k]);
          CHECK(wrong == 0);
          // reverse() holds every edge once, at its source.
          const Places offsets = longs(graph.reverse().offsets());
          const Ids to = ids(graph.reverse().columns());
          const Places edge = longs(graph.reverse_order());
          std::vector<int> seen(expected.size());
          for (std::int32_t node = 0; node < nodes; ++node)
            for (std::int64_t r = offsets[node]; r < offsets[node + 1]; ++r) {
              wrong += source[edge[r]] != node || destination[edge[r]] != to[r];
              wrong += r > offsets[node] && edge[r] <= edge[r - 1];
              ++seen[edge[r]];
            }
          CHECK(wrong == 0);
          CHECK(std::count(seen.begin(), seen.end(), 1) == static_cast<int>(expected.size()));
        }
}

TEST_CASE("graph: a large one, built in many buckets") {
  for (std::int64_t nodes : {1, 100, 70000}) {
    RandomEdges list = random_edges(5, nodes, 300000);
    for (std::size_t i = 0; i < 100000; ++i) list.destination[i] %= 10;  // crowded rows
    const GraphOptions options{true, true, SelfLoops::add};
    const Graph graph(nodes, list.source, list.destination, options);
    const auto expected = expected_edges(list, options);
    REQUIRE(graph.num_edges() == static_cast<std::int64_t>(expected.size()));
    const Ids source = ids(graph.sources()), destination = ids(graph.destinations());
    const Places order = longs(graph.edge_order());
    int wrong = 0;
    for (std::size_t k = 0; k < expected.size(); ++k)
      wrong += expected[k] != std::tuple(destination[k], source[k], order[k]);
    CHECK(wrong == 0);
  }
}

TEST_CASE("graph: with_self_loops is what SelfLoops::add builds, once") {
  for (int edges : {0, 30, 200}) {
    const RandomEdges list = random_edges(3, 25, edges);
    const Graph graph(25, list.source, list.destination);
    const Graph direct(25, list.source, list.destination, {.self_loops = SelfLoops::add});
    std::vector<const Graph*> answers(4);
    {
      std::vector<std::thread> threads;
      for (auto& answer : answers) threads.emplace_back([&] { answer = &graph.with_self_loops(); });
      for (auto& thread : threads) thread.join();
    }
    for (const Graph* answer : answers) CHECK(answer == answers[0]);
    const Graph& loops = graph.with_self_loops();
    CHECK(ids(loops.sources()) == ids(direct.sources()));
    CHECK(longs(loops.pattern().offsets()) == longs(direct.pattern().offsets()));
    CHECK(longs(loops.edge_order()) == longs(direct.edge_order()));
    CHECK(loops.num_self_loops() == 25);
    CHECK(&loops.with_self_loops() == &loops);
  }
}

TEST_CASE("graph: a batch is block diagonal") {
  const RandomEdges a = random_edges(1, 5, 12), b = random_edges(2, 8, 9);
  const Graph first(5, a.source, a.destination), empty(3, Ids{}, Ids{}),
      second(8, b.source, b.destination, {.self_loops = SelfLoops::add});
  const std::vector<Graph> parts{first, empty, second};
  const Graph batch = Graph::batch(parts);
  CHECK(batch.num_nodes() == 16);
  CHECK(batch.num_graphs() == 3);
  CHECK(longs(batch.graph_offsets()) == Places{0, 5, 8, 16});
  CHECK(ids(batch.graph_ids()) == Ids{0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2});
  Ids source = a.source, destination = a.destination;
  for (std::size_t i = 0; i < b.source.size(); ++i) {
    source.push_back(b.source[i] + 8);
    destination.push_back(b.destination[i] + 8);
  }
  const Ids from = ids(batch.sources()), to = ids(batch.destinations());
  const Places order = longs(batch.edge_order());
  CHECK(std::is_sorted(to.begin(), to.end()));
  for (std::size_t k = 0; k < order.size(); ++k) {
    CHECK(batch.num_edges() == first.num_edges() + second.num_edges());
    if (order[k] < 0) {
      CHECK(from[k] == to[k]);
      CHECK(from[k] >= 8);
    } else {
      CHECK(from[k] == source[order[k]]);
      CHECK(to[k] == destination[order[k]]);
    }
  }
  const std::vector<Graph> nested{batch, first};
  CHECK(longs(Graph::batch(nested).graph_offsets()) == Places{0, 5, 8, 16, 21});
  CHECK(Graph::batch({}).num_nodes() == 0);
  CHECK(batch.with_self_loops().num_graphs() == 3);
}

TEST_CASE("graph: tensors of i32 and i64, apart or in pairs") {
  const Graph expected(3, Ids{0, 1}, Ids{2, 2});
  const Tensor source = from_values<std::int64_t>({2}, {0, 1}),
               destination = from_values<std::int32_t>({2}, {2, 2}),
               pairs = from_values<std::int64_t>({2, 2}, {0, 2, 1, 2});
  for (const Graph& graph :
       {Graph(3, source, destination), Graph(3, pairs), Graph(3, pairs.to(i32))}) {
    CHECK(ids(graph.sources()) == ids(expected.sources()));
    CHECK(ids(graph.destinations()) == ids(expected.destinations()));
  }
  CHECK(error_of([&] {
          Graph(3, source.to(f32), destination);
        }).starts_with("graph: sources and destinations must be i32 or i64 of rank 1, got "));
  CHECK_THROWS_AS(Graph(3, source), Error);
  CHECK_THROWS_AS(Graph(3, Tensor(), destination), Error);
  CHECK_THROWS_AS(Graph(3, from_values<std::int64_t>({1, 2}, {1LL << 40, 0})), Error);
}

TEST_CASE("graph: bad edges are named") {
  CHECK(error_of([] {
          Graph(3, Ids{0, 1, 2}, Ids{1, 3, -1});
        }) == "graph: edge 1 is 1 -> 3; node ids must be in [0, 3)");
  CHECK(error_of([] {
          Graph(3, Ids{0, -1}, Ids{1, 0});
        }) == "graph: edge 1 is -1 -> 0; node ids must be in [0, 3)");
  CHECK(error_of([] {
          Graph(3, Ids{0}, Ids{1, 0});
        }) == "graph: 1 sources and 2 destinations; expected as many");
  CHECK(error_of([] { Graph(-1, Ids{}, Ids{}); }) ==
        "graph: -1 nodes; must be from 0 to 2147483647");
  CHECK_THROWS_AS(Graph(std::int64_t{1} << 31, Ids{}, Ids{}), Error);
  CHECK(Graph().num_nodes() == 0);
  CHECK(Graph().with_self_loops().num_edges() == 0);
}

}  // namespace lipgrad
