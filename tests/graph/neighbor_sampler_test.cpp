#include <lipgrad/graph/neighbor_sampler.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {
namespace {

using Longs = std::vector<std::int64_t>;

Longs longs(const Tensor& x) { return x.to_vector<std::int64_t>(); }
Tensor ids(const Longs& values) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values);
}
Graph random_graph(std::int64_t nodes, std::int64_t edges, std::uint64_t seed) {
  Generator rng(seed);
  return Graph(nodes, rand_int({edges, 2}, nodes, rng));
}

// Every edge is one of the original, into a node that some hop before the last met, as many as the
// fanout allows; places of nodes are in the order of hops.
void check_sample(const Graph& graph, const SampledGraph& sample, const Longs& seeds,
                  const Longs& fanouts) {
  const Longs nodes = longs(sample.nodes), degree = longs(graph.in_degrees()),
              sampled = longs(sample.graph.in_degrees()), edges = longs(sample.graph.edge_order());
  REQUIRE(sample.seeds == static_cast<std::int64_t>(seeds.size()));
  REQUIRE(sample.graph.num_nodes() == static_cast<std::int64_t>(nodes.size()));
  CHECK(std::equal(seeds.begin(), seeds.end(), nodes.begin()));
  CHECK(std::set(nodes.begin(), nodes.end()).size() == nodes.size());
  CHECK(std::set(edges.begin(), edges.end()).size() == edges.size());
  const auto from = graph.sources().to_vector<std::int32_t>(),
             to = graph.destinations().to_vector<std::int32_t>(),
             from_here = sample.graph.sources().to_vector<std::int32_t>(),
             to_here = sample.graph.destinations().to_vector<std::int32_t>();
  for (std::size_t k = 0; k < edges.size(); ++k) {
    CHECK(nodes[from_here[k]] == from[edges[k]]);
    CHECK(nodes[to_here[k]] == to[edges[k]]);
  }
  std::size_t first = 0, last = seeds.size();
  std::set<std::int64_t> met(seeds.begin(), seeds.end());
  for (const std::int64_t fanout : fanouts) {
    for (std::size_t i = first; i < last; ++i)
      CHECK(sampled[i] == (fanout < 0 ? degree[nodes[i]] : std::min(fanout, degree[nodes[i]])));
    for (std::size_t k = 0; k < edges.size(); ++k)
      if (std::size_t(to_here[k]) >= first && std::size_t(to_here[k]) < last)
        met.insert(from[edges[k]]);
    first = last;
    last = met.size();
  }
  CHECK(met.size() == nodes.size());
  for (std::size_t i = first; i < nodes.size(); ++i) CHECK(sampled[i] == 0);
}

TEST_CASE("samples are neighbourhoods of the seeds, hop by hop") {
  const Graph graph = random_graph(400, 6000, 5);
  Generator rng{1};
  for (const Longs& fanouts : std::vector<Longs>{{4, 3}, {-1}, {-1, 2}, {1, 1, 1}, {100}, {}}) {
    NeighborSampler sampler(graph, fanouts);
    for (const Longs& seeds : std::vector<Longs>{{7, 390, 0}, {12}, {}})
      check_sample(graph, sampler.sample(ids(seeds), rng), seeds, fanouts);
  }
  // Isolated seeds, loops, repeated edges.
  const Graph odd(4, ids({0, 0, 1, 1}), ids({1, 1, 1, 0}));
  NeighborSampler sampler(odd, {2, -1});
  for (int i = 0; i < 20; ++i) check_sample(odd, sampler.sample(ids({3, 1}), rng), {3, 1}, {2, -1});
}

TEST_CASE("every set of neighbours is equally likely") {
  // Node 0 has 6 neighbours, of which 3 are drawn: 20 sets.
  const Graph graph(7, ids({1, 2, 3, 4, 5, 6}), ids({0, 0, 0, 0, 0, 0}));
  NeighborSampler sampler(graph, {3});
  Generator rng{11};
  std::map<Longs, int> seen;
  const int draws = 20000;
  for (int i = 0; i < draws; ++i)
    ++seen[longs(sampler.sample(ids({0}), rng).graph.edge_order().clone())];
  CHECK(seen.size() == 20);
  double chi2 = 0;
  for (const auto& [set, count] : seen) chi2 += std::pow(count - draws / 20.0, 2) / (draws / 20.0);
  CHECK(chi2 < 43.8);  // 19 degrees of freedom: 0.1 %
}

TEST_CASE("a large fanout draws different neighbours, each as often") {
  const std::int64_t degree = 300, fanout = 100;
  Longs to(degree, 0), from(degree);
  for (std::int64_t k = 0; k < degree; ++k) from[k] = k + 1;
  const Graph graph(degree + 1, ids(from), ids(to));
  NeighborSampler sampler(graph, {fanout});
  Generator rng{3};
  std::vector<int> count(degree);
  for (int i = 0; i < 3000; ++i) {
    const Longs edges = longs(sampler.sample(ids({0}), rng).graph.edge_order());
    REQUIRE(std::set(edges.begin(), edges.end()).size() == fanout);
    for (const std::int64_t k : edges) ++count[k];
  }
  // Expected 1000, standard deviation 25.8.
  CHECK(*std::min_element(count.begin(), count.end()) > 870);
  CHECK(*std::max_element(count.begin(), count.end()) < 1130);
}

TEST_CASE("samples repeat with the generator, whatever the threads and the other seeds") {
  const Graph graph = random_graph(3000, 60000, 8);
  const int threads = num_threads();
  const Tensor seeds = arange(600);
  std::vector<SampledGraph> samples;
  for (const int count : {1, 2}) {
    set_num_threads(count);
    Generator rng{5};
    NeighborSampler sampler(graph, {5, 4});
    samples.push_back(sampler.sample(seeds, rng));
    CHECK(rng.next_draw() == 1);
  }
  set_num_threads(threads);
  CHECK(bitwise_equal(samples[0].nodes, samples[1].nodes));
  CHECK(bitwise_equal(samples[0].graph.sources(), samples[1].graph.sources()));
  CHECK(bitwise_equal(samples[0].graph.edge_order(), samples[1].graph.edge_order()));
  // Node 17 draws the same edges alone.
  const auto edges_into = [&](const SampledGraph& sample, std::int64_t row) {
    const Longs offsets = longs(sample.graph.pattern().offsets()),
                edges = longs(sample.graph.edge_order());
    std::set<std::int64_t> into(edges.begin() + offsets[row], edges.begin() + offsets[row + 1]);
    return into;
  };
  Generator rng{5};
  NeighborSampler sampler(graph, {5, 4});
  const SampledGraph alone = sampler.sample(ids({17}), rng);
  CHECK(edges_into(alone, 0) == edges_into(samples[0], 17));
  // The next draw gives others.
  CHECK(edges_into(sampler.sample(ids({17}), rng), 0) != edges_into(alone, 0));
}

TEST_CASE("what the sampler refuses, and that it works on afterwards") {
  const Graph graph = random_graph(10, 40, 1);
  CHECK_THROWS_AS(NeighborSampler(graph, {3, 0}), Error);
  NeighborSampler sampler(graph, {2});
  Generator rng{1};
  CHECK_THROWS_WITH_AS(sampler.sample(ids({1, 2, 1}), rng),
                       "NeighborSampler: seed 1 is named twice, at 0 and 2", Error);
  CHECK_THROWS_AS(sampler.sample(ids({10}), rng), Error);
  check_sample(graph, sampler.sample(ids({2, 1}), rng), {2, 1}, {2});
}

}  // namespace
}  // namespace lipgrad
