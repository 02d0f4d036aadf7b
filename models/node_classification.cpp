#include <lipgrad/models/node_classification.h>

namespace lipgrad {

std::vector<Measurement> measure_node_classification(const Tensor& logits, const NodeData& data) {
  std::vector<Measurement> metrics;
  const auto has = [](const Tensor& rows) { return rows.defined() && rows.numel() > 0; };
  const auto accuracy = [&](const char* name, const Tensor& rows) {
    metrics.push_back(
        {name, correct(logits, data.labels, rows), static_cast<double>(rows.numel())});
  };
  if (has(data.train)) accuracy("train_accuracy", data.train);
  if (has(data.val)) {
    accuracy("valid_accuracy", data.val);
    metrics.push_back({"valid_loss", cross_entropy(logits, data.labels, {.rows = data.val})});
  }
  if (has(data.test)) accuracy("test_accuracy", data.test);
  return metrics;
}

}  // namespace lipgrad
