#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/core/random.h>
#include <lipgrad/graph/features.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// What is asked of a node.
enum class NodeTask : std::uint8_t {
  multi_class,  // which of several classes it has
  multi_label,  // of each of several labels, the tasks, whether it has that
};

// What predictions are judged by.
enum class NodeScore : std::uint8_t {
  accuracy,  // multi_class
  roc_auc,   // multi_class of two classes; multi_label: the mean over tasks
  f1_micro,
  f1_macro,
};
// "accuracy", "roc_auc", "f1_micro", "f1_macro".
const char* name_of(NodeScore score);

// A data set for node classification: one graph of N nodes.
struct NodeData {
  std::string name;
  // Edges in both directions, none repeated; self-loops as the loader was asked (none by default).
  Graph graph;
  Features features;  // N x F, f32
  // (E, F'), f32: row k belongs to edge k of the graph. Undefined when edges have no features.
  Tensor edge_features;
  NodeTask task = NodeTask::multi_class;
  NodeScore score = NodeScore::accuracy;
  // multi_class: (N), i64, classes in [0, num_classes); multi_label: (N, num_classes), f32, 1 for
  // yes, 0 for no, NaN for not known.
  Tensor labels;
  // Classes, or tasks: how many numbers a model gives for a node.
  std::int64_t num_classes = 0;
  // Node ids of the split, i64, ascending. They do not overlap; together they need not be all
  // nodes.
  Tensor train, val, test;

  // All of it on another device.
  NodeData to(Device device) const;
};

// Error "<name>: ..." unless the parts fit together: N rows and labels, labels in [0, num_classes)
// or 0, 1 and NaN, a score that the task has, E rows of edge features, split ids in [0, N),
// ascending, no node in two parts. The data are on the CPU.
void check_node_data(const NodeData& data);

// Replaces the split by a random one: of each class `train_per_class` nodes to train, the next
// `val_per_class` for validation, the rest to test (Shchur et al.: Pitfalls of graph neural network
// evaluation, 2018, uses 20 and 30). A class too small gives what it has, in that order.
// Error unless the task is multi_class.
void random_split(NodeData& data, std::int64_t train_per_class, std::int64_t val_per_class,
                  Generator& rng);

// The missing-vector setting (Zhao, Akoglu: PairNorm, ICLR 2020; in the form of Dasoulas et al.,
// ICML 2021, whose test nodes stay the split's): sets the features of `percent` % of the nodes
// outside the training set to zero, chosen at random, the number rounded down. Returns how many.
// Error unless percent is from 0 to 100.
std::int64_t hide_features(NodeData& data, double percent, Generator& rng);

}  // namespace lipgrad
