#include <lipgrad/graph/node_data.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>

namespace lipgrad {

NodeData NodeData::to(Device device) const {
  NodeData moved = *this;
  moved.graph = graph.to(device);
  if (features.defined()) moved.features = features.to(device);
  for (Tensor* part : {&moved.edge_features, &moved.labels, &moved.train, &moved.val, &moved.test})
    if (part->defined()) *part = part->to(device);
  return moved;
}

const char* name_of(NodeScore score) {
  switch (score) {
    case NodeScore::accuracy:
      return "accuracy";
    case NodeScore::roc_auc:
      return "roc_auc";
    case NodeScore::f1_micro:
      return "f1_micro";
    case NodeScore::f1_macro:
      return "f1_macro";
  }
  return "?";
}

namespace {

void check_labels(const NodeData& data) {
  const std::int64_t nodes = data.graph.num_nodes(), classes = data.num_classes;
  if (data.task == NodeTask::multi_class) {
    LIPGRAD_CHECK(
        data.labels.defined() && data.labels.dtype() == i64 && data.labels.shape() == Shape{nodes},
        "{}: labels must be i64 of shape ({}), got {}", data.name, nodes, data.labels.str());
    LIPGRAD_CHECK(data.score != NodeScore::roc_auc || classes == 2,
                  "{}: ROC-AUC is for two classes or for labels, not for {} classes", data.name,
                  classes);
    const std::int64_t* label = data.labels.data<std::int64_t>();
    for (std::int64_t i = 0; i < nodes; ++i)
      LIPGRAD_CHECK(label[i] >= 0 && label[i] < classes,
                    "{}: node {} has the label {}; labels must be in [0, {})", data.name, i,
                    label[i], classes);
    return;
  }
  LIPGRAD_CHECK(data.labels.defined() && data.labels.dtype() == f32 &&
                    data.labels.shape() == Shape({nodes, classes}),
                "{}: labels must be f32 of shape ({}, {}), got {}", data.name, nodes, classes,
                data.labels.str());
  LIPGRAD_CHECK(data.score != NodeScore::accuracy,
                "{}: nodes with several labels are judged by ROC-AUC or F1, not by accuracy",
                data.name);
  const float* label = data.labels.data<float>();
  for (std::int64_t i = 0; i < data.labels.numel(); ++i)
    LIPGRAD_CHECK(label[i] == 0 || label[i] == 1 || std::isnan(label[i]),
                  "{}: node {} has {} for label {}; expected 0, 1 or NaN", data.name, i / classes,
                  label[i], i % classes);
}

}  // namespace

void check_node_data(const NodeData& data) {
  const std::int64_t nodes = data.graph.num_nodes();
  LIPGRAD_CHECK(data.features.defined() && data.features.rows() == nodes,
                "{}: features of {} nodes, but a graph of {}", data.name,
                data.features.defined() ? data.features.rows() : 0, nodes);
  if (data.edge_features.defined())
    LIPGRAD_CHECK(data.edge_features.dtype() == f32 && data.edge_features.rank() == 2 &&
                      data.edge_features.size(0) == data.graph.num_edges(),
                  "{}: edge features must be f32, a row for each of {} edges, got {}", data.name,
                  data.graph.num_edges(), data.edge_features.str());
  check_labels(data);
  std::vector<bool> used(static_cast<std::size_t>(nodes));
  for (const Tensor* part : {&data.train, &data.val, &data.test}) {
    LIPGRAD_CHECK(part->defined() && part->dtype() == i64 && part->rank() == 1,
                  "{}: the parts of the split must be i64 of rank 1, got {}", data.name,
                  part->str());
    const std::int64_t* id = part->data<std::int64_t>();
    for (std::int64_t i = 0; i < part->numel(); ++i) {
      LIPGRAD_CHECK(id[i] >= 0 && id[i] < nodes, "{}: the split names node {} of {}", data.name,
                    id[i], nodes);
      LIPGRAD_CHECK((i == 0 || id[i - 1] < id[i]) && !used[static_cast<std::size_t>(id[i])],
                    "{}: the split names node {} twice or out of order", data.name, id[i]);
      used[static_cast<std::size_t>(id[i])] = true;
    }
  }
}

void random_split(NodeData& data, std::int64_t train_per_class, std::int64_t val_per_class,
                  Generator& rng) {
  LIPGRAD_CHECK(train_per_class >= 0 && val_per_class >= 0,
                "random_split: {} and {} nodes a class; expected none or more", train_per_class,
                val_per_class);
  LIPGRAD_CHECK(data.task == NodeTask::multi_class, "random_split: {} has no classes", data.name);
  const std::int64_t nodes = data.graph.num_nodes();
  const Tensor order = rand_permutation(nodes, rng);
  const std::int64_t* label = data.labels.data<std::int64_t>();
  std::vector<std::int64_t> taken(static_cast<std::size_t>(data.num_classes));
  std::vector<std::int64_t> parts[3];
  for (std::int64_t i = 0; i < nodes; ++i) {
    const std::int64_t node = order.data<std::int64_t>()[i];
    const std::int64_t before = taken[static_cast<std::size_t>(label[node])]++;
    const int part = before < train_per_class                   ? 0
                     : before - train_per_class < val_per_class ? 1
                                                                : 2;
    parts[part].push_back(node);
  }
  Tensor* const split[3] = {&data.train, &data.val, &data.test};
  for (int p = 0; p < 3; ++p) {
    std::sort(parts[p].begin(), parts[p].end());
    *split[p] = from_vector({static_cast<std::int64_t>(parts[p].size())}, parts[p]);
  }
}

std::int64_t hide_features(NodeData& data, double percent, Generator& rng) {
  LIPGRAD_CHECK(percent >= 0 && percent <= 100,
                "hide_features: the percentage must be from 0 to 100, got {}", percent);
  const std::int64_t nodes = data.graph.num_nodes();
  std::vector<bool> trained(static_cast<std::size_t>(nodes));
  for (std::int64_t i = 0; i < data.train.numel(); ++i)
    trained[static_cast<std::size_t>(data.train.data<std::int64_t>()[i])] = true;
  const Tensor order = rand_permutation(nodes, rng);
  const std::int64_t count =
      static_cast<std::int64_t>(percent / 100 * static_cast<double>(nodes - data.train.numel()));
  std::vector<std::int64_t> hidden;
  for (std::int64_t i = 0; static_cast<std::int64_t>(hidden.size()) < count; ++i) {
    const std::int64_t node = order.data<std::int64_t>()[i];
    if (!trained[static_cast<std::size_t>(node)]) hidden.push_back(node);
  }
  data.features = zero_rows(data.features, from_vector({count}, hidden));
  return count;
}

}  // namespace lipgrad
