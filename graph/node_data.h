#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/core/random.h>
#include <lipgrad/graph/features.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// A data set for node classification: one graph of N nodes.
struct NodeData {
  std::string name;
  // Edges in both directions, none repeated; self-loops as the loader was asked (none by default).
  Graph graph;
  Features features;  // N x F, f32
  Tensor labels;      // (N), i64, classes in [0, num_classes)
  std::int64_t num_classes = 0;
  // Node ids of the split, i64, ascending. They do not overlap; together they need not be all
  // nodes.
  Tensor train, val, test;

  // All of it on another device.
  NodeData to(Device device) const;
};

// Error "<name>: ..." unless the parts fit together: N rows and labels, labels in [0, num_classes),
// split ids in [0, N), ascending, no node in two parts. The data are on the CPU.
void check_node_data(const NodeData& data);

// Replaces the split by a random one: of each class `train_per_class` nodes to train, the next
// `val_per_class` for validation, the rest to test (Shchur et al.: Pitfalls of graph neural network
// evaluation, 2018, uses 20 and 30). A class too small gives what it has, in that order.
void random_split(NodeData& data, std::int64_t train_per_class, std::int64_t val_per_class,
                  Generator& rng);

// The missing-vector setting (Zhao, Akoglu: PairNorm, ICLR 2020; in the form of Dasoulas et al.,
// ICML 2021, whose test nodes stay the split's): sets the features of `percent` % of the nodes
// outside the training set to zero, chosen at random, the number rounded down. Returns how many.
// Error unless percent is from 0 to 100.
std::int64_t hide_features(NodeData& data, double percent, Generator& rng);

}  // namespace lipgrad
