#include <lipgrad/graph/partition.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/graph/node_ids.h>

namespace lipgrad {
namespace {

void check_parts(const char* op, std::int64_t parts) {
  LIPGRAD_CHECK(parts >= 1, "{}: the number of parts must be at least 1, got {}", op, parts);
}

Tensor all_nodes(std::int64_t count) {
  Tensor nodes = empty({count}, i64);
  std::iota(nodes.mutable_data<std::int64_t>(), nodes.mutable_data<std::int64_t>() + count, 0);
  return nodes;
}

}  // namespace

Tensor Partition::part(std::int64_t p) const {
  LIPGRAD_CHECK(p >= 0 && p < parts(), "partition: part {} of {}", p, parts());
  const std::int64_t* offset = offsets.data<std::int64_t>();
  return nodes.alias({offset[p + 1] - offset[p]}, offset[p]);
}

Partition partition_from(const Tensor& part_of, std::int64_t parts) {
  check_parts("partition_from", parts);
  const std::vector<std::int64_t> part = node_ids("partition_from", part_of, parts);
  const auto count = static_cast<std::int64_t>(part.size());
  Partition result{empty({count}, i64), zeros({parts + 1}, i64)};
  std::int64_t *node = result.nodes.mutable_data<std::int64_t>(),
               *offset = result.offsets.mutable_data<std::int64_t>();
  for (const std::int64_t p : part) ++offset[p + 1];
  std::partial_sum(offset, offset + parts + 1, offset);
  std::vector<std::int64_t> next(offset, offset + parts);
  for (std::int64_t i = 0; i < count; ++i)
    node[next[static_cast<std::size_t>(part[static_cast<std::size_t>(i)])]++] = i;
  return result;
}

Partition random_partition(std::int64_t num_nodes, std::int64_t parts, Generator& rng) {
  check_parts("random_partition", parts);
  LIPGRAD_CHECK(num_nodes >= 0, "random_partition: {} nodes", num_nodes);
  Partition result{parts == 1 ? all_nodes(num_nodes) : rand_permutation(num_nodes, rng),
                   empty({parts + 1}, i64)};
  std::int64_t *node = result.nodes.mutable_data<std::int64_t>(),
               *offset = result.offsets.mutable_data<std::int64_t>();
  // The first (num_nodes mod parts) parts have one node more.
  for (std::int64_t p = 0; p <= parts; ++p)
    offset[p] = num_nodes / parts * p + std::min(p, num_nodes % parts);
  parallel_for(parts, 1, [&](std::int64_t p, std::int64_t) {
    std::sort(node + offset[p], node + offset[p + 1]);
  });
  return result;
}

std::int64_t cut_edges(const Graph& graph, const Partition& partition) {
  const std::int64_t nodes = graph.num_nodes();
  LIPGRAD_CHECK(partition.nodes.defined() && partition.nodes.numel() == nodes,
                "cut_edges: a partition of {} nodes, but a graph of {}",
                partition.nodes.defined() ? partition.nodes.numel() : 0, nodes);
  const Graph host = graph.to(cpu_device);
  std::vector<std::int64_t> part_of(static_cast<std::size_t>(nodes));
  const std::int64_t* offset = partition.offsets.data<std::int64_t>();
  for (std::int64_t p = 0; p < partition.parts(); ++p)
    for (std::int64_t i = offset[p]; i < offset[p + 1]; ++i)
      part_of[static_cast<std::size_t>(partition.nodes.data<std::int64_t>()[i])] = p;
  const std::int64_t* start = host.pattern().offsets().data<std::int64_t>();
  const std::int32_t* source = host.sources().data<std::int32_t>();
  std::atomic<std::int64_t> cut = 0;
  parallel_for(nodes, 4096, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t here = 0;
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t k = start[i]; k < start[i + 1]; ++k)
        here +=
            part_of[static_cast<std::size_t>(source[k])] != part_of[static_cast<std::size_t>(i)];
    cut += here;
  });
  return cut;
}

}  // namespace lipgrad
