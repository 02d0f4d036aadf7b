#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include <lipgrad/core/optimizer.h>

namespace lipgrad {

// A learning rate as a function of the number of schedule steps so far and of the rate that the
// optimiser had at first. What a step is, an update or an epoch, is up to who calls
// LrSchedule::step(). Rates combine: linear_warmup({.steps = 10}, cosine_decay({.steps = 190})).
struct Rate {
  std::string kind;  // "warmup+cosine"
  std::function<double(std::int64_t step, double base)> at;
};

// The base rate.
Rate constant_rate();

struct StepDecayOptions {
  std::int64_t every = 30;
  double factor = 0.1;
};
// base * factor^(step / every), rounded down: torch's StepLR. Error unless every > 0.
Rate step_decay(StepDecayOptions options);

struct CosineDecayOptions {
  std::int64_t steps = 0;  // required
  double min_lr = 0;
};
// min + (base - min) (1 + cos(pi step / steps)) / 2, and min after that (Loshchilov, Hutter: SGDR,
// ICLR 2017, eq. 5): torch's CosineAnnealingLR, which would rise again. Error unless steps > 0.
Rate cosine_decay(CosineDecayOptions options);

struct LinearWarmupOptions {
  std::int64_t steps = 0;  // required
  double start_factor = 1.0 / 3;
};
// Rises evenly from start_factor * base at step 0 to base at step `steps`; then follows `then`,
// which counts from there: torch's LinearLR followed by another in a SequentialLR. Error unless
// steps > 0 and 0 <= start_factor <= 1.
Rate linear_warmup(LinearWarmupOptions options, Rate then = constant_rate());

// Gives an optimiser the learning rates of a Rate, from the first at construction on.
//
//   LrSchedule schedule{optimizer, cosine_decay({.steps = 200})};
//   for (...) { ...; optimizer.step(); schedule.step(); }
class LrSchedule final : public Schedule {
 public:
  LrSchedule(Optimizer& optimizer, Rate rate);

  // Moves on by one and sets the optimiser's learning rate.
  void step();
  std::int64_t steps() const { return step_; }

  std::string kind() const override { return rate_.kind; }
  StateValues state() const override;

 private:
  void restore(const StateValues& values) override;

  Rate rate_;
  double base_;
  std::int64_t step_ = 0;
};

struct ReduceOnPlateauOptions {
  bool maximize = false;  // the metric is better when larger (accuracy), else when smaller (loss)
  double factor = 0.1;    // new rate = max(factor * rate, min_lr)
  std::int64_t patience = 10;  // steps without improvement that are put up with
  double threshold = 1e-4;     // how much better counts as better
  bool relative = true;        // threshold times the best value, else the threshold itself
  std::int64_t cooldown = 0;   // steps after a reduction that do not count
  double min_lr = 0;
  double min_change = 1e-8;  // smaller reductions are not made
};

// Reduces an optimiser's learning rate when a metric stops improving, by the rule of torch's
// ReduceLROnPlateau. A metric that is NaN counts as no improvement.
class ReduceOnPlateau final : public Schedule {
 public:
  explicit ReduceOnPlateau(Optimizer& optimizer, ReduceOnPlateauOptions options = {});

  // Call it with the metric after every epoch.
  void step(double metric);

  std::string kind() const override { return "plateau"; }
  StateValues state() const override;

 private:
  void restore(const StateValues& values) override;
  bool is_better(double metric) const;

  ReduceOnPlateauOptions options_;
  double best_;
  std::int64_t bad_steps_ = 0, cooldown_left_ = 0;
};

}  // namespace lipgrad
