#pragma once

// Private: where a training run stands, and the files it continues from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/weight_average.h>

namespace lipgrad {

// The parameters and buffers of a module, copied.
class Snapshot {
 public:
  explicit Snapshot(const Module& module);
  void restore(Module& module) const;

 private:
  std::vector<Tensor> parameters_, buffers_;
};

// An epoch of several steps that is not at its end.
struct EpochState {
  std::int64_t step = 0;    // steps done
  std::uint64_t draw = 0;   // the generator's next draw when the epoch began
  double loss = 0;          // the sum over the steps that had one,
  std::int64_t losses = 0;  // and how many they are
};

struct TrainingState {
  TrainResult result;
  EpochState epoch;
  std::optional<Snapshot> best_weights;
  bool best_saved = true;
};

// Whether the weights that count are kept apart from those in training.
inline bool keeps_best(const TrainOptions& options) {
  return options.select != Selection::last || options.average_decay > 0;
}

// last.lip and best.lip in the directory of a run.
class RunFiles {
 public:
  // Creates the directory.
  explicit RunFiles(const std::string& directory);

  bool has_run() const;
  // schedule and average may be null. Error when what is there was made with another configuration.
  void load(const Task& task, const TrainOptions& options, Optimizer& optimizer, Schedule* schedule,
            Generator& rng, WeightAverage* average, TrainingState& state) const;
  void save(const Task& task, const TrainOptions& options, const Optimizer& optimizer,
            const Schedule* schedule, const Generator& rng, const WeightAverage* average,
            TrainingState& state) const;

 private:
  std::string last_path_, best_path_;
};

}  // namespace lipgrad
