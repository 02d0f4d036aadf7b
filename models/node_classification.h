#pragma once

#include <lipgrad/core/tape.h>
#include <lipgrad/graph/node_data.h>
#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/loss.h>

namespace lipgrad {

// "train_accuracy", "valid_accuracy", "valid_loss" and "test_accuracy" of logits (N, C); parts of
// the split that are empty are left out.
std::vector<Measurement> measure_node_classification(const Tensor& logits, const NodeData& data);

// The task of fitting model.forward(graph, features, mode) -> logits (N, C) to the labels of the
// training nodes by cross-entropy, full batch. The model and the data must outlive it.
template <class Model>
Task node_classification(Model& model, const NodeData& data) {
  return {model,
          [&](Mode mode) {
            return cross_entropy(model.forward(data.graph, data.features, mode), data.labels,
                                 {.rows = data.train});
          },
          [&] {
            const NoGrad off;
            return measure_node_classification(
                model.forward(data.graph, data.features, Mode::eval()), data);
          }};
}

}  // namespace lipgrad
