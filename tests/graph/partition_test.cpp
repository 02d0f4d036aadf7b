#include <lipgrad/graph/partition.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <lipgrad/core/error.h>

namespace lipgrad {
namespace {

using Longs = std::vector<std::int64_t>;

Longs longs(const Tensor& x) { return x.to_vector<std::int64_t>(); }

// Every node in one part, ids ascending within each.
void check_partition(const Partition& partition, std::int64_t nodes, std::int64_t parts) {
  REQUIRE(partition.parts() == parts);
  Longs seen;
  for (std::int64_t p = 0; p < parts; ++p) {
    const Longs part = longs(partition.part(p));
    CHECK(std::is_sorted(part.begin(), part.end()));
    seen.insert(seen.end(), part.begin(), part.end());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == longs(arange(nodes)));
}

TEST_CASE("random parts hold every node once and are of equal size") {
  for (const auto& [nodes, parts] : {std::pair<std::int64_t, std::int64_t>{1000, 10},
                                     {1003, 10},
                                     {7, 7},
                                     {3, 5},
                                     {0, 2},
                                     {12, 1}}) {
    Generator rng{2};
    const Partition partition = random_partition(nodes, parts, rng);
    check_partition(partition, nodes, parts);
    for (std::int64_t p = 0; p < parts; ++p)
      CHECK(partition.part(p).numel() == nodes / parts + (p < nodes % parts));
    CHECK(rng.next_draw() == (parts > 1));
  }
}

TEST_CASE("random parts differ from draw to draw and repeat with the generator") {
  Generator rng{4}, again{4};
  const Partition first = random_partition(500, 4, rng), second = random_partition(500, 4, rng);
  CHECK(!bitwise_equal(first.nodes, second.nodes));
  CHECK(bitwise_equal(first.nodes, random_partition(500, 4, again).nodes));
  // A pair of nodes shares one of four parts in a quarter of the draws: 3 of 4 standard deviations.
  std::int64_t together = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    const Partition partition = random_partition(40, 4, rng);
    for (std::int64_t p = 0; p < 4; ++p) {
      const Longs part = longs(partition.part(p));
      together +=
          std::count(part.begin(), part.end(), 3) && std::count(part.begin(), part.end(), 17);
    }
  }
  const double expected = 2000 * 9.0 / 39, deviation = std::sqrt(expected * (1 - 9.0 / 39));
  CHECK(std::abs(together - expected) < 4 * deviation);
}

TEST_CASE("a partition from the parts of the nodes, some of them empty") {
  const Partition partition = partition_from(from_vector<std::int32_t>({6}, {3, 0, 3, 3, 0, 1}), 5);
  check_partition(partition, 6, 5);
  CHECK(longs(partition.part(0)) == Longs{1, 4});
  CHECK(longs(partition.part(1)) == Longs{5});
  CHECK(partition.part(2).numel() == 0);
  CHECK(longs(partition.part(3)) == Longs{0, 2, 3});
  CHECK(partition.part(4).numel() == 0);
  CHECK_THROWS_WITH_AS(partition.part(5), "partition: part 5 of 5", Error);
  CHECK_THROWS_AS(partition_from(from_vector<std::int64_t>({2}, {0, 5}), 5), Error);
  Generator rng{1};
  CHECK_THROWS_WITH_AS(random_partition(3, 0, rng),
                       "random_partition: the number of parts must be at least 1, got 0", Error);
}

TEST_CASE("cut edges are counted") {
  const Graph graph(4, from_vector<std::int32_t>({5, 2}, {0, 1, 1, 2, 2, 3, 3, 3, 3, 0}));
  const Partition halves = partition_from(from_vector<std::int32_t>({4}, {0, 0, 1, 1}), 2);
  CHECK(cut_edges(graph, halves) == 2);
  CHECK(cut_edges(graph, partition_from(zeros({4}, i64), 1)) == 0);
  CHECK_THROWS_AS(cut_edges(Graph(), halves), Error);
}

TEST_CASE("METIS keeps groups together, balanced and the same every time") {
  if (!has_metis()) return;
  // 8 groups of 100 nodes, many edges within and a few between; repeated ones and loops too.
  Generator rng{6};
  const std::int64_t groups = 8, size = 100, nodes = groups * size;
  std::vector<std::int32_t> source, destination;
  const Longs ends = longs(rand_int({12000}, size, rng)),
              group = longs(rand_int({6000}, groups, rng));
  for (std::size_t k = 0; k < 6000; ++k) {
    const std::int64_t to_group = k % 60 == 0 ? (group[k] + 1) % groups : group[k];
    // Node numbers say nothing of the group: those of group g are g, g + 8, g + 16, ...
    source.push_back(static_cast<std::int32_t>(ends[2 * k] * groups + group[k]));
    destination.push_back(static_cast<std::int32_t>(ends[2 * k + 1] * groups + to_group));
  }
  const Graph graph(nodes, source, destination);
  const Partition partition = metis_partition(graph, groups);
  check_partition(partition, nodes, groups);
  for (std::int64_t p = 0; p < groups; ++p)
    CHECK(partition.part(p).numel() <= static_cast<std::int64_t>(1.04 * size) + 1);
  CHECK(cut_edges(graph, partition) <= 100);  // the edges between the groups
  CHECK(cut_edges(graph, random_partition(nodes, groups, rng)) > 4000);
  CHECK(bitwise_equal(metis_partition(graph, groups).nodes, partition.nodes));
}

TEST_CASE("METIS on graphs with nothing to go by") {
  if (!has_metis()) return;
  check_partition(metis_partition(Graph(), 1), 0, 1);
  check_partition(metis_partition(Graph(50, zeros({0, 2}, i64)), 5), 50, 5);
  check_partition(metis_partition(Graph(5, zeros({3, 2}, i64)), 5), 5, 5);
  check_partition(metis_partition(Graph(9, from_vector<std::int64_t>({2, 2}, {0, 1, 1, 2})), 1), 9,
                  1);
  CHECK_THROWS_WITH_AS(metis_partition(Graph(3, zeros({1, 2}, i64)), 4),
                       "metis_partition: 4 parts of 3 nodes; expected 1 to 3", Error);
  CHECK_THROWS_AS(metis_partition(Graph(3, zeros({1, 2}, i64)), 2, {.seed = -1}), Error);
  CHECK_THROWS_AS(metis_partition(Graph(3, zeros({1, 2}, i64)), 2, {.imbalance = 1}), Error);
}

TEST_CASE("without METIS the error says how to get it") {
  if (has_metis()) return;
  CHECK_THROWS_WITH_AS(metis_partition(Graph(), 1), doctest::Contains("libmetis-dev"), Error);
}

}  // namespace
}  // namespace lipgrad
