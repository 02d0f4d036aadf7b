#include <lipgrad/models/node_classification.h>

namespace lipgrad {

std::vector<Metric> measure_node_classification(const Tensor& logits, const NodeData& data) {
  std::vector<Metric> metrics;
  const auto has = [](const Tensor& rows) { return rows.defined() && rows.numel() > 0; };
  if (has(data.train))
    metrics.push_back({"train_accuracy", accuracy(logits, data.labels, data.train)});
  if (has(data.val)) {
    metrics.push_back({"valid_accuracy", accuracy(logits, data.labels, data.val)});
    metrics.push_back(
        {"valid_loss", cross_entropy(logits, data.labels, {.rows = data.val}).item()});
  }
  if (has(data.test))
    metrics.push_back({"test_accuracy", accuracy(logits, data.labels, data.test)});
  return metrics;
}

}  // namespace lipgrad
