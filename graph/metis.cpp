#include <lipgrad/core/check.h>
#include <lipgrad/graph/partition.h>

#ifndef LIPGRAD_WITH_METIS

namespace lipgrad {

bool has_metis() { return false; }

Partition metis_partition(const Graph&, std::int64_t, const MetisOptions&) {
  fail(
      "metis_partition: this build of lipgrad has no METIS; install it (Debian: libmetis-dev) and "
      "configure with -DLIPGRAD_METIS=ON, or use random_partition");
}

}  // namespace lipgrad

#else

#include <metis.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

namespace lipgrad {
namespace {

// What METIS reads: the neighbours of each node, whichever the direction, each once, itself not.
struct Neighbours {
  std::vector<idx_t> offsets, nodes;
};

Neighbours neighbours_of(const Graph& graph) {
  const std::int64_t nodes = graph.num_nodes();
  // A pattern of its own: the transposed one goes when this function ends.
  const CsrPattern into(nodes, nodes, graph.pattern().offsets(), graph.sources());
  const CsrPattern& out_of = into.transposed();
  const std::int64_t *in_offset = into.offsets().data<std::int64_t>(),
                     *out_offset = out_of.offsets().data<std::int64_t>();
  const std::int32_t *in = into.columns().data<std::int32_t>(),
                     *out = out_of.columns().data<std::int32_t>();
  // Calls f(neighbour) for those of one node; both rows ascend.
  const auto each = [&](std::int64_t node, auto&& f) {
    std::int64_t a = in_offset[node], b = out_offset[node], last = -1;
    while (a < in_offset[node + 1] || b < out_offset[node + 1]) {
      const bool from_a = b == out_offset[node + 1] || (a < in_offset[node + 1] && in[a] <= out[b]);
      const std::int64_t next = from_a ? in[a++] : out[b++];
      if (next != node && next != last) f(next);
      last = next;
    }
  };
  Neighbours result;
  result.offsets.reserve(static_cast<std::size_t>(nodes) + 1);
  result.offsets.push_back(0);
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < nodes; ++i) {
    each(i, [&](std::int64_t) { ++total; });
    LIPGRAD_CHECK(total <= std::numeric_limits<idx_t>::max(),
                  "metis_partition: more than {} neighbours; the installed METIS counts with {} "
                  "bits",
                  std::numeric_limits<idx_t>::max(), IDXTYPEWIDTH);
    result.offsets.push_back(static_cast<idx_t>(total));
  }
  result.nodes.reserve(static_cast<std::size_t>(total));
  for (std::int64_t i = 0; i < nodes; ++i)
    each(i, [&](std::int64_t next) { result.nodes.push_back(static_cast<idx_t>(next)); });
  return result;
}

}  // namespace

bool has_metis() { return true; }

Partition metis_partition(const Graph& graph, std::int64_t parts, const MetisOptions& options) {
  const std::int64_t nodes = graph.num_nodes();
  LIPGRAD_CHECK(parts >= 1 && parts <= std::max<std::int64_t>(nodes, 1),
                "metis_partition: {} parts of {} nodes; expected 1 to {}", parts, nodes,
                std::max<std::int64_t>(nodes, 1));
  LIPGRAD_CHECK(options.imbalance >= 1.001 && options.imbalance <= 100,
                "metis_partition: imbalance must be from 1.001 to 100, got {}", options.imbalance);
  LIPGRAD_CHECK(options.seed >= 0 && options.seed <= std::numeric_limits<std::int32_t>::max(),
                "metis_partition: seed must be from 0 to {}, got {}",
                std::numeric_limits<std::int32_t>::max(), options.seed);
  std::vector<idx_t> part(static_cast<std::size_t>(nodes));
  if (parts > 1) {
    Neighbours neighbours = neighbours_of(graph.to(cpu_device));
    idx_t settings[METIS_NOPTIONS];
    METIS_SetDefaultOptions(settings);
    settings[METIS_OPTION_NUMBERING] = 0;
    settings[METIS_OPTION_SEED] = static_cast<idx_t>(options.seed);
    settings[METIS_OPTION_UFACTOR] =
        static_cast<idx_t>(std::lround(1000 * (options.imbalance - 1)));
    idx_t count = static_cast<idx_t>(nodes), constraints = 1, wanted = static_cast<idx_t>(parts),
          cut = 0;
    // METIS seeds the C library's one generator.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const int status = METIS_PartGraphKway(&count, &constraints, neighbours.offsets.data(),
                                           neighbours.nodes.data(), nullptr, nullptr, nullptr,
                                           &wanted, nullptr, nullptr, settings, &cut, part.data());
    LIPGRAD_CHECK(status == METIS_OK, "metis_partition: METIS {} for {} nodes and {} neighbours",
                  status == METIS_ERROR_MEMORY ? "ran out of memory" : "failed", nodes,
                  neighbours.nodes.size());
  }
  Tensor part_of = empty({nodes}, i64);
  std::copy(part.begin(), part.end(), part_of.mutable_data<std::int64_t>());
  return partition_from(part_of, parts);
}

}  // namespace lipgrad

#endif
