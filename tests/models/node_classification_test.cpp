#include <lipgrad/models/node_classification.h>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <lipgrad/graph/generated_graph.h>
#include <lipgrad/graph/subgraph.h>
#include <lipgrad/models/gnn.h>
#include <lipgrad/ops/metrics.h>
#include <lipgrad/ops/optimizers.h>

namespace lipgrad {
namespace {

NodeData classes(std::int64_t count) {
  return generated_citation_graph({.num_nodes = 200,
                                   .num_edges = 500,
                                   .num_features = 100,
                                   .num_classes = count,
                                   .train_per_class = 10,
                                   .num_val = 80,
                                   .num_test = 80});
}

// Whether a node is of an even class, and of one of the first two; some are not known.
NodeData labels() {
  NodeData data = classes(4);
  Tensor several = zeros({200, 2});
  float* label = several.mutable_data<float>();
  for (std::int64_t i = 0; i < 200; ++i) {
    const std::int64_t c = data.labels.data<std::int64_t>()[i];
    label[2 * i] = c % 2 == 0;
    label[2 * i + 1] = i % 7 == 0 ? std::nanf("") : c < 2;
  }
  data.labels = several;
  data.num_classes = 2;
  data.task = NodeTask::multi_label;
  data.score = NodeScore::roc_auc;
  return data;
}

std::vector<std::string> names_of(const std::vector<Metric>& metrics) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics) names.push_back(metric.name);
  return names;
}

}  // namespace

TEST_CASE("node classification: metrics are those of the data") {
  using Names = std::vector<std::string>;
  Generator rng{1};
  NodeData data = classes(2);
  const Tensor logits = randn({200, 2}, f32, rng);
  CHECK(names_of(read(measure_node_classification(logits, data))) ==
        Names{"train_accuracy", "valid_accuracy", "valid_loss", "test_accuracy"});
  data.score = NodeScore::f1_macro;
  std::vector<Metric> metrics = read(measure_node_classification(logits, data));
  CHECK(names_of(metrics) ==
        Names{"train_f1_macro", "valid_f1_macro", "valid_loss", "test_f1_macro"});
  CHECK(metrics[1].value == f1(logits, data.labels, F1Average::macro, data.val));
  data.score = NodeScore::roc_auc;
  metrics = read(measure_node_classification(logits, data));
  CHECK(metrics[3].name == "test_roc_auc");
  CHECK(metrics[3].value == roc_auc(logits, data.labels, data.test));
  data.val = Tensor();
  CHECK(names_of(read(measure_node_classification(logits, data))) ==
        Names{"train_roc_auc", "test_roc_auc"});
  const NodeData several = labels();
  metrics = read(measure_node_classification(logits, several));
  CHECK(metrics[1].name == "valid_roc_auc");
  CHECK(metrics[1].value == roc_auc(logits, several.labels, several.val));
  CHECK(metrics[2].value ==
        doctest::Approx(
            bce_with_logits(logits, several.labels, {.rows = several.val, .skip_missing = true})
                .item()));
}

TEST_CASE(
    "node classification: several labels are learned, the best epoch is that of their score") {
  const NodeData data = labels();
  Gnn model{{.in = data.features.cols(), .out = data.num_classes, .heads = 2, .hidden = 8}};
  Generator rng{2};
  model.initialize(rng);
  Adam optimizer(model, AdamOptions{.lr = 0.01});
  const Task task = node_classification(model, data);
  CHECK(task.score == "roc_auc");
  const TrainResult result =
      train(task, optimizer, nullptr, rng, {.epochs = 60, .progress = false});
  CHECK(result.at_best("valid_roc_auc") > 0.75);  // chance is 0.5; 0.92 measured
  CHECK(result.at_best("valid_roc_auc") >= read(task.evaluate())[1].value);
}

TEST_CASE("node classification: edge features go to models that take them, and into parts") {
  NodeData data = classes(3);
  data.edge_features = zeros({data.graph.num_edges(), 2});
  for (std::int64_t k = 0; k < data.edge_features.numel(); ++k)
    data.edge_features.mutable_data<float>()[k] = static_cast<float>(k);
  check_node_data(data);
  struct Plain {
    Tensor forward(const Graph&, const Features&, Mode) const { return zeros({1}); }
  } plain;
  struct Edges {
    Tensor forward(const Graph&, const Features&, const Tensor& edge_features, Mode) const {
      return edge_features;
    }
  } edges;
  CHECK(node_logits(plain, data, Mode::eval()).numel() == 1);
  CHECK(node_logits(edges, data, Mode::eval()).numel() == data.edge_features.numel());
  const NodeData part =
      induced_data(data, from_values<std::int64_t>({6}, {5, 90, 3, 120, 77, 199}));
  check_node_data(part);
  const Tensor order = part.graph.edge_order();
  for (std::int64_t k = 0; k < part.graph.num_edges(); ++k)
    CHECK(part.edge_features.data<float>()[2 * k] ==
          static_cast<float>(2 * order.data<std::int64_t>()[k]));
  NodeData several = labels();
  several.name = "several";
  CHECK(induced_data(several, several.train).task == NodeTask::multi_label);
  CHECK(induced_data(several, several.train).score == NodeScore::roc_auc);
}

}  // namespace lipgrad
