#pragma once

#include <lipgrad/core/tape.h>
#include <lipgrad/graph/node_data.h>
#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/loss.h>

namespace lipgrad {

// What logits (N, C) of the data's nodes cost in the given rows: the cross-entropy of their
// classes, or the binary one of those labels that are known.
Tensor node_classification_loss(const Tensor& logits, const NodeData& data, const Tensor& rows);

// "train_<score>", "valid_<score>", "valid_loss" and "test_<score>" of logits (N, C), with the name
// of the data's score ("accuracy", "roc_auc", "f1_micro", "f1_macro"); parts of the split that are
// empty are left out. Accuracies are left on the device; other scores are computed on the CPU.
std::vector<Measurement> measure_node_classification(const Tensor& logits, const NodeData& data);

// The model's logits (N, C). Models that take edge features get the data's.
template <class Model>
Tensor node_logits(Model& model, const NodeData& data, Mode mode) {
  if constexpr (requires { model.forward(data.graph, data.features, data.edge_features, mode); }) {
    return model.forward(data.graph, data.features, data.edge_features, mode);
  } else {
    return model.forward(data.graph, data.features, mode);
  }
}

// The task of fitting model.forward(graph, features[, edge_features], mode) -> logits (N, C) to the
// labels of the training nodes, full batch. The model and the data must outlive it.
template <class Model>
Task node_classification(Model& model, const NodeData& data) {
  return {model,
          [&](Mode mode) {
            return node_classification_loss(node_logits(model, data, mode), data, data.train);
          },
          [&] {
            const NoGrad off;
            return measure_node_classification(node_logits(model, data, Mode::eval()), data);
          },
          name_of(data.score)};
}

}  // namespace lipgrad
