#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/optimizer.h>
#include <lipgrad/core/random.h>

namespace lipgrad {

// A measured value: {"valid_accuracy", 0.794}.
struct Metric {
  std::string name;
  double value;
};

// A value still on the model's device, to be read once everything is queued there: the scalar
// `value` over `divisor`.
struct Measurement {
  std::string name;
  Tensor value;
  double divisor = 1;
};
std::vector<Metric> read(const std::vector<Measurement>& measurements);

// What is trained, and how it is measured: any model on any data.
struct Task {
  Module& model;
  // One training step's loss, a scalar; runs under a tape.
  std::function<Tensor(Mode)> loss;
  // Measures the model in evaluation mode, after an epoch; always the same names.
  std::function<std::vector<Measurement>()> evaluate;
  // What the task is judged by: "valid_<score>" is among its metrics, and larger is better.
  std::string score = "accuracy";

  // Steps of an epoch, each with a loss, a backward pass and an optimiser's step of its own: for
  // data seen part by part. The epoch's loss is the mean of theirs.
  std::int64_t steps = 1;
  // Called once, before the first step of a run that has done so many epochs, and so many steps of
  // the next one: for data with an order of its own.
  std::function<void(std::int64_t epoch, std::int64_t step)> start = {};
  // Called as an epoch begins: draws what is drawn once for it, as an order of the data. It depends
  // on nothing but the generator: a run that resumes within an epoch calls it with the generator as
  // it was then.
  std::function<void(Generator&)> begin_epoch = {};
  // Called before each step 0, ..., steps - 1, with no tape recording: prepares what loss() sees.
  // False: nothing is to be learned there, and the step is left out.
  std::function<bool(std::int64_t step, Generator&)> begin_step = {};
};

// Which epoch's weights count.
enum class Selection {
  score,  // the largest "valid_<score>" (see Task::score); of equal ones the smallest "valid_loss",
          // then the first
  loss,   // the smallest "valid_loss", the first one of equal ones
  last,   // the last epoch
};

struct TrainOptions {
  std::int64_t epochs = 200;
  Selection select = Selection::score;
  // Stop when so many epochs brought nothing better; 0: never.
  std::int64_t patience = 0;
  // Directory for last.lip (everything needed to go on), best.lip (the weights of the best epoch),
  // and what every epoch measured, "loss", the task's metrics and "lr": metrics.jsonl (a line an
  // epoch) and an event file for TensorBoard (see EventWriter; the step is the epoch). Created if
  // need be; empty: nothing is written.
  std::string out = {};
  // Continue from out/last.lip if it is there. The result is bit for bit that of a run that never
  // stopped, metrics.jsonl included. Events get a new file: TensorBoard takes the files of the
  // directory together as one run and drops from those before whatever is later than the
  // checkpoint, which is measured again.
  bool resume = false;
  // Epochs between evaluations; one is always made at the end. On a CUDA device the host waits for
  // the results of an evaluation and of nothing else: steps in between are only queued. Only
  // epochs that were evaluated can be the best one, and only they move a ReduceOnPlateau.
  std::int64_t evaluate_every = 1;
  // Launch each training step as one CUDA graph (see CudaGraph). Changes no result; for models
  // whose steps are always of the same shapes. Steps that log gradients run without.
  bool cuda_graph = false;
  // Steps of an epoch whose gradients make up one update of the optimiser: their mean; the last
  // update of an epoch may be of fewer. Steps that the task leaves out count as zeros. Training
  // stops and saves between updates only.
  std::int64_t accumulate = 1;
  // Above 0: the largest l2 norm of all gradients together, see clip_grad_norm. A CUDA device is
  // then waited for at every update. Not with cuda_graph.
  double clip_norm = 0;
  // Whether an LrSchedule moves on after every update of the optimiser rather than every epoch.
  bool schedule_per_update = false;
  // Above 0: the decay of a WeightAverage, updated with the weights. What is measured, chosen and
  // left in the model, and saved in best.lip, are then the averaged weights; last.lip holds both.
  double average_decay = 0;
  // Epochs between checkpoints; one is always written at the end.
  std::int64_t checkpoint_every = 20;
  // In epochs of several steps one is written too, between two of them, when the last one is so
  // old.
  double checkpoint_seconds = 600;
  // Epochs between those that also log the l2 norm of every parameter's gradient, as
  // "gradient_norm/<path>", and that of all together, as "gradient_norm" (see grad_norms): epochs
  // 1, 1 + K, 1 + 2 K, ..., between backward and the optimiser's step, the last one of the epoch.
  // Changes no result. 0: never.
  std::int64_t log_gradients_every = 0;
  // Settings of the run as JSON, kept in the checkpoint; a checkpoint with other settings is not
  // resumed.
  std::string config = "{}";
  bool progress = true;
  // Asked after every epoch, and after every update within an epoch of several: when it says true,
  // a checkpoint is written and training returns. It goes on from there, within the epoch too.
  std::function<bool()> interrupted = {};
};

struct TrainResult {
  std::int64_t epochs = 0;       // whole epochs done, those before a resume included
  std::int64_t best_epoch = 0;   // counted from 1; 0: none yet
  std::vector<Metric> best;      // measured after that epoch
  std::vector<Metric> last;      // measured after the last epoch
  double seconds_per_epoch = 0;  // median over the whole epochs of this call, evaluation included
  bool interrupted = false;

  // The value of that name at the best epoch; Error when there is none.
  double at_best(const std::string& name) const;
};

// Trains for options.epochs epochs of task.steps steps each and leaves the chosen epoch's weights
// in the model, which must be initialised. schedule may be null; step() is called on it after every
// epoch, or see schedule_per_update. Errors: a loss that is not finite (names the epoch),
// everything that checkpoints and files can do wrong.
TrainResult train(const Task& task, Optimizer& optimizer, Schedule* schedule, Generator& rng,
                  const TrainOptions& options);

}  // namespace lipgrad
