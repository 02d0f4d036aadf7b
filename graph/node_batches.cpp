#include <lipgrad/graph/node_batches.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/graph/neighbor_sampler.h>
#include <lipgrad/graph/subgraph.h>

namespace lipgrad {

NodeBatches random_parts(const NodeData& data, std::int64_t parts) {
  LIPGRAD_CHECK(parts >= 1, "random_parts: the number of parts must be at least 1, got {}", parts);
  const auto partition = std::make_shared<Partition>();
  return {parts,
          [=, nodes = data.graph.num_nodes()](Generator& rng) {
            *partition = random_partition(nodes, parts, rng);
          },
          [=](std::int64_t step, Generator&) { return induced_data(data, partition->part(step)); }};
}

NodeBatches fixed_parts(const NodeData& data, const Partition& partition, std::int64_t per_step) {
  LIPGRAD_CHECK(per_step >= 1, "fixed_parts: a step needs at least one part, got {}", per_step);
  LIPGRAD_CHECK(partition.nodes.defined() && partition.nodes.numel() == data.graph.num_nodes(),
                "fixed_parts: a partition of {} nodes, but data of {}",
                partition.nodes.defined() ? partition.nodes.numel() : 0, data.graph.num_nodes());
  const std::int64_t parts = partition.parts();
  const auto order = std::make_shared<Tensor>();
  return {
      (parts + per_step - 1) / per_step,
      [=](Generator& rng) { *order = parts > 1 ? rand_permutation(parts, rng) : arange(1); },
      [=](std::int64_t step, Generator&) {
        std::vector<std::int64_t> nodes;
        for (std::int64_t i = step * per_step; i < std::min((step + 1) * per_step, parts); ++i) {
          const Tensor part = partition.part(order->data<std::int64_t>()[i]);
          nodes.insert(nodes.end(), part.data<std::int64_t>(),
                       part.data<std::int64_t>() + part.numel());
        }
        std::sort(nodes.begin(), nodes.end());
        return induced_data(data, from_vector({static_cast<std::int64_t>(nodes.size())}, nodes));
      }};
}

NodeBatches sampled_neighborhoods(const NodeData& data, std::vector<std::int64_t> fanouts,
                                  std::int64_t batch_size) {
  LIPGRAD_CHECK(batch_size >= 1, "sampled_neighborhoods: batch_size must be at least 1, got {}",
                batch_size);
  LIPGRAD_CHECK(data.train.defined() && data.train.numel() > 0,
                "sampled_neighborhoods: {} has no training nodes", data.name);
  const auto sampler = std::make_shared<NeighborSampler>(data.graph, std::move(fanouts));
  const auto order = std::make_shared<Tensor>();
  const Tensor train = data.train.to(cpu_device);
  const std::int64_t count = train.numel();
  return {(count + batch_size - 1) / batch_size,
          [=](Generator& rng) {
            *order = rand_permutation(count, rng);
            std::int64_t* node = order->mutable_data<std::int64_t>();
            for (std::int64_t i = 0; i < count; ++i) node[i] = train.data<std::int64_t>()[node[i]];
          },
          [=](std::int64_t step, Generator& rng) {
            const std::int64_t first = step * batch_size;
            const Tensor seeds = order->alias({std::min(batch_size, count - first)}, first);
            const SampledGraph sample = sampler->sample(seeds, rng);
            NodeData batch = select_node_data(data, sample.graph, sample.nodes);
            batch.train = arange(sample.seeds).to(data.train.device());
            return batch;
          }};
}

}  // namespace lipgrad
