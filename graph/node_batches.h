#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <lipgrad/graph/node_data.h>
#include <lipgrad/graph/partition.h>

namespace lipgrad {

// A data set seen piece by piece: an epoch is `steps` pieces, each made when it is asked for.
struct NodeBatches {
  std::int64_t steps = 1;
  // Draws what holds for a whole epoch; depends on the generator alone.
  std::function<void(Generator&)> begin_epoch;
  // The piece of step 0, ..., steps - 1 of the epoch that was begun, on the device of the data. Its
  // split holds those of its nodes that are to be learned from; there may be none.
  std::function<NodeData(std::int64_t step, Generator&)> batch;
};

// Batches keep a handle on the graph, the features and the labels of the data, not on the object.

// Random parts, drawn anew for every epoch, as DeeperGCN is trained on ogbn-proteins (see
// random_partition). Error unless parts >= 1.
NodeBatches random_parts(const NodeData& data, std::int64_t parts);

// The parts of a partition, per_step of them together, with the edges between them, in an order
// drawn anew for every epoch (Cluster-GCN: Chiang et al., KDD 2019, algorithm 1). Error unless
// per_step >= 1 and the partition is one of the data's nodes.
NodeBatches fixed_parts(const NodeData& data, const Partition& partition,
                        std::int64_t per_step = 1);

// Sampled neighbourhoods (see NeighborSampler) of the training nodes, batch_size of them a step in
// an order drawn anew for every epoch. A batch has its seeds in its first rows and as its training
// nodes. Error unless batch_size >= 1.
NodeBatches sampled_neighborhoods(const NodeData& data, std::vector<std::int64_t> fanouts,
                                  std::int64_t batch_size);

}  // namespace lipgrad
