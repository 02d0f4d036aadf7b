#include <lipgrad/models/batched_training.h>

#include <memory>
#include <optional>
#include <utility>

namespace lipgrad {
namespace {

struct Batch {
  NodeData data;
  std::optional<Task> task;  // of the data above
};

}  // namespace

Task in_batches(const Task& whole, std::function<Task(const NodeData&)> task_of,
                NodeBatches batches) {
  const auto now = std::make_shared<Batch>();
  Task task = whole;
  task.steps = batches.steps;
  task.begin_epoch = std::move(batches.begin_epoch);
  task.begin_step = [now, make = std::move(batches.batch), task_of = std::move(task_of)](
                        std::int64_t step, Generator& rng) {
    now->task.reset();
    now->data = {};  // the last batch goes before the next one comes
    now->data = make(step, rng);
    if (now->data.train.numel() == 0) return false;
    now->task.emplace(task_of(now->data));
    return true;
  };
  task.loss = [now](Mode mode) { return now->task->loss(mode); };
  return task;
}

}  // namespace lipgrad
