#include <lipgrad/models/node_classification.h>

#include <lipgrad/ops/metrics.h>

namespace lipgrad {

Tensor node_classification_loss(const Tensor& logits, const NodeData& data, const Tensor& rows) {
  if (data.task == NodeTask::multi_class) return cross_entropy(logits, data.labels, {.rows = rows});
  return bce_with_logits(logits, data.labels.to(logits.dtype()),
                         {.rows = rows, .skip_missing = true});
}

std::vector<Measurement> measure_node_classification(const Tensor& logits, const NodeData& data) {
  const bool here = data.score == NodeScore::accuracy;
  const Tensor local = here ? Tensor() : logits.to(cpu_device),
               labels = here ? Tensor() : data.labels.to(cpu_device);
  const auto score = [&](const Tensor& rows) {
    return data.score == NodeScore::roc_auc
               ? roc_auc(local, labels, rows)
               : f1(local, labels,
                    data.score == NodeScore::f1_micro ? F1Average::micro : F1Average::macro, rows);
  };
  std::vector<Measurement> metrics;
  const auto measure = [&](const char* part, const Tensor& rows) {
    const std::string name = std::string(part) + "_" + name_of(data.score);
    if (here)
      metrics.push_back(
          {name, correct(logits, data.labels, rows), static_cast<double>(rows.numel())});
    else
      metrics.push_back({name, full({}, score(rows), f64)});
  };
  const auto has = [](const Tensor& rows) { return rows.defined() && rows.numel() > 0; };
  if (has(data.train)) measure("train", data.train);
  if (has(data.val)) {
    measure("valid", data.val);
    metrics.push_back({"valid_loss", node_classification_loss(logits, data, data.val)});
  }
  if (has(data.test)) measure("test", data.test);
  return metrics;
}

}  // namespace lipgrad
