#pragma once

#include <functional>

#include <lipgrad/graph/node_batches.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/models/trainer.h>

namespace lipgrad {

// A task that learns batch by batch: an epoch has a step for each batch that has training nodes,
// with the loss of task_of(batch). Everything else is as `whole` says, the task of all the data at
// once. One batch is in memory at a time. An epoch of one batch, the whole of the data, gives the
// bits of full-batch training.
Task in_batches(const Task& whole, std::function<Task(const NodeData&)> task_of,
                NodeBatches batches);

// Node classification (see node_classification.h) on batches of the data, evaluated on all of it:
//
//   train(node_classification(model, data, random_parts(data, 10)), ...);
//
// The model and the data must outlive the task.
template <class Model>
Task node_classification(Model& model, const NodeData& data, NodeBatches batches) {
  return in_batches(
      node_classification(model, data),
      [&model](const NodeData& batch) { return node_classification(model, batch); },
      std::move(batches));
}

}  // namespace lipgrad
