#include <lipgrad/graph/neighbor_sampler.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/node_ids.h>

namespace lipgrad {
namespace {

// A number in [0, bound) for the j-th choice at a node; bound is far below 2^64.
std::int64_t below(std::int64_t bound, std::uint64_t seed, std::uint64_t draw, std::int64_t node,
                   std::int64_t j) {
  const PhiloxBlock block =
      philox(seed, draw, static_cast<std::uint64_t>(node) << 32 | static_cast<std::uint64_t>(j));
  const std::uint64_t word = std::uint64_t{block.word[0]} << 32 | block.word[1];
  // The upper half of word * bound.
  const std::uint64_t n = static_cast<std::uint64_t>(bound), high = word >> 32,
                      low = word & 0xffffffff;
  return static_cast<std::int64_t>((high * n + (low * n >> 32)) >> 32);
}

// Floyd's algorithm (Bentley, Floyd: A sample of brilliance, CACM 30, 1987): `wanted` different
// numbers in [0, degree), every set equally likely, into chosen, ascending.
void choose(std::int64_t wanted, std::int64_t degree, std::uint64_t seed, std::uint64_t draw,
            std::int64_t node, std::int64_t* chosen) {
  std::unordered_set<std::int64_t> many;  // where looking through the list would take long
  std::int64_t count = 0;
  const auto has = [&](std::int64_t k) {
    return wanted > 64 ? many.contains(k) : std::find(chosen, chosen + count, k) < chosen + count;
  };
  for (std::int64_t last = degree - wanted; last < degree; ++last) {
    const std::int64_t k = below(last + 1, seed, draw, node, count);
    chosen[count] = has(k) ? last : k;
    if (wanted > 64) many.insert(chosen[count]);
    ++count;
  }
  std::sort(chosen, chosen + wanted);
}

}  // namespace

NeighborSampler::NeighborSampler(const Graph& graph, std::vector<std::int64_t> fanouts)
    : graph_(graph), fanouts_(std::move(fanouts)) {
  for (const std::int64_t fanout : fanouts_)
    LIPGRAD_CHECK(fanout == -1 || fanout > 0,
                  "NeighborSampler: a fanout must be above 0, or -1 for all neighbours, got {}",
                  fanout);
  place_.assign(static_cast<std::size_t>(graph.num_nodes()), -1);
}

SampledGraph NeighborSampler::sample(const Tensor& seeds, Generator& rng) {
  const Graph host = graph_.to(cpu_device);
  std::vector<std::int64_t> nodes = node_ids("NeighborSampler", seeds, host.num_nodes());
  const auto num_seeds = static_cast<std::int64_t>(nodes.size());
  const std::uint64_t seed = rng.seed(), draw = rng.take_draw();
  const std::int64_t* offset = host.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = host.sources().data<std::int32_t>();
  // place_ is all -1 again when the function ends, however it ends.
  struct Places {
    std::vector<std::int32_t>& of;
    std::vector<std::int64_t>& nodes;
    ~Places() {
      for (const std::int64_t node : nodes) of[static_cast<std::size_t>(node)] = -1;
    }
  } places{place_, nodes};
  for (std::int64_t i = 0; i < num_seeds; ++i) {
    std::int32_t& place = place_[static_cast<std::size_t>(nodes[static_cast<std::size_t>(i)])];
    LIPGRAD_CHECK(place < 0, "NeighborSampler: seed {} is named twice, at {} and {}",
                  nodes[static_cast<std::size_t>(i)], place, i);
    place = static_cast<std::int32_t>(i);
  }

  std::vector<std::int64_t> start{0}, edges;  // row by row, the original numbers
  std::int64_t first = 0;                     // of the nodes that this hop expands
  for (const std::int64_t fanout : fanouts_) {
    const auto last = static_cast<std::int64_t>(nodes.size());
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t degree = offset[nodes[i] + 1] - offset[nodes[i]];
      start.push_back(start.back() + (fanout < 0 ? degree : std::min(degree, fanout)));
    }
    edges.resize(static_cast<std::size_t>(start.back()));
    parallel_for(last - first, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = first + begin; i < first + end; ++i) {
        const std::int64_t node = nodes[i], degree = offset[node + 1] - offset[node],
                           wanted = start[i + 1] - start[i];
        std::int64_t* row = edges.data() + start[i];
        if (wanted < degree)
          choose(wanted, degree, seed, draw, node, row);
        else
          for (std::int64_t k = 0; k < degree; ++k) row[k] = k;
        for (std::int64_t k = 0; k < wanted; ++k) row[k] += offset[node];
      }
    });
    for (std::int64_t k = start[first]; k < start.back(); ++k) {
      const std::int32_t from = source[edges[static_cast<std::size_t>(k)]];
      std::int32_t& place = place_[static_cast<std::size_t>(from)];
      if (place >= 0) continue;
      place = static_cast<std::int32_t>(nodes.size());
      nodes.push_back(from);
    }
    first = last;
  }
  const auto count = static_cast<std::int64_t>(nodes.size()),
             num_edges = static_cast<std::int64_t>(edges.size());
  start.resize(static_cast<std::size_t>(count) + 1, start.back());

  Tensor columns = empty({num_edges}, i32), order = empty({num_edges}, i64);
  std::int32_t* column = columns.mutable_data<std::int32_t>();
  std::int64_t* edge = order.mutable_data<std::int64_t>();
  parallel_for(count, 512, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::pair<std::int32_t, std::int64_t>> row;
    for (std::int64_t i = begin; i < end; ++i) {
      row.clear();
      for (std::int64_t k = start[i]; k < start[i + 1]; ++k)
        row.emplace_back(place_[static_cast<std::size_t>(source[edges[k]])], edges[k]);
      std::sort(row.begin(), row.end());
      std::int64_t at = start[i];
      for (const auto& [from, k] : row) {
        column[at] = from;
        edge[at++] = k;
      }
    }
  });
  SampledGraph sample;
  sample.graph = Graph::from_sorted(
                     CsrPattern(count, count, from_vector({count + 1}, start), std::move(columns)),
                     std::move(order), host.num_edges())
                     .to(graph_.device());
  sample.nodes = from_vector({count}, nodes).to(graph_.device());
  sample.seeds = num_seeds;
  return sample;
}

}  // namespace lipgrad
