#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lipgrad/core/checkpoint_info.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Parameters with settings of their own, chosen by a predicate of their path ("blocks.3.fc.bias").
struct OptimizerGroup {
  std::function<bool(const std::string& path, const Parameter& parameter)> contains;
  std::optional<double> weight_decay = std::nullopt;  // default: the optimiser's
  double lr_factor = 1;                               // times the optimiser's learning rate
};

// The group of all parameters of rank 0 and 1 (biases, scales of normalisations) without weight
// decay.
OptimizerGroup no_decay_on_vectors();

// What an optimiser must be given to go on where another one stopped.
struct OptimizerState {
  std::string kind;                       // "adam"
  StateValues values;                     // "lr", and the settings, for the reader's information
  std::map<std::string, Tensor> tensors;  // "a.weight/m": f32 or f64; "a.weight/steps": i64, ()
};

// Changes the parameters of a module along their gradients. The parameters are those that the
// module has at construction; it must outlive the optimiser. The state of a parameter follows it to
// another device or dtype (Module::to), so that the optimiser stays valid.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The learning rate of the next step; schedules change it. Error unless finite and >= 0.
  double lr() const { return lr_; }
  void set_lr(double lr);

  // One update of every trainable parameter that has a gradient; the others keep value and state.
  // Gradients are neither changed nor cleared.
  void step();
  // Makes the gradients undefined.
  void zero_grad();

  // Calls of step() so far, and the trainable parameters that the last one skipped for want of a
  // gradient.
  std::int64_t steps() const { return steps_; }
  std::int64_t skipped() const { return skipped_; }

  // "sgd", "adam", "adamw".
  virtual std::string kind() const = 0;
  // State for a checkpoint; the tensors share storage with the optimiser until its next step.
  OptimizerState state() const;
  // Why load_state() would refuse this state, one line each; empty when it fits.
  std::vector<std::string> problems(const OptimizerState& state) const;
  // Takes over the learning rate and the state of every parameter; settings such as momentum stay
  // those of this optimiser. Error with all problems(), then nothing is changed.
  void load_state(OptimizerState state);

 protected:
  // One parameter and its state.
  struct Slot {
    std::string path;
    Parameter* parameter = nullptr;
    double weight_decay = 0, lr_factor = 1;
    std::int64_t steps = 0;       // updates so far, this one included while update() runs
    std::vector<Tensor> moments;  // one for each of moment_names(), zeros at first
  };

  Optimizer(Module& module, double lr, double weight_decay,
            const std::vector<OptimizerGroup>& groups);
  double lr_of(const Slot& slot) const { return lr_ * slot.lr_factor; }
  // Updates these parameters, each of which has a value, a gradient and moments of the same shape,
  // dtype and device; all of them are of this dtype and device.
  virtual void update(std::span<Slot* const> slots, DType dtype, Device device) = 0;
  // What a parameter's moments are called in a state.
  virtual std::vector<std::string> moment_names() const = 0;
  // The settings, for the reader of a checkpoint.
  virtual StateValues settings() const = 0;

 private:
  std::vector<Slot> slots_;
  double lr_;
  std::int64_t steps_ = 0, skipped_ = 0;
};

// Changes an optimiser's learning rate over time. Kept in core for checkpoints; the schedules
// themselves are in ops/schedules.h.
class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // "cosine", "warmup+cosine", "plateau".
  virtual std::string kind() const = 0;
  // Its state, for a checkpoint: always the same keys.
  virtual StateValues state() const = 0;
  // Why load_state() would refuse this, one line each; empty when it fits.
  std::vector<std::string> problems(const CheckpointInfo::StateInfo& state) const;
  // Error with all problems(), then nothing is changed.
  void load_state(const CheckpointInfo::StateInfo& state);

 protected:
  explicit Schedule(Optimizer& optimizer) : optimizer_(&optimizer) {}
  Optimizer& optimizer() const { return *optimizer_; }
  // Takes over values with the keys and types of state().
  virtual void restore(const StateValues& values) = 0;

 private:
  Optimizer* optimizer_;
};

}  // namespace lipgrad
