#include <lipgrad/ops/schedules.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <lipgrad/core/check.h>

namespace lipgrad {

Rate constant_rate() {
  return {"constant", [](std::int64_t, double base) { return base; }};
}

Rate step_decay(StepDecayOptions options) {
  LIPGRAD_CHECK(options.every > 0 && options.factor >= 0,
                "step_decay: every {} and factor {}; expects every > 0 and factor >= 0",
                options.every, options.factor);
  return {"step", [options](std::int64_t step, double base) {
            return base * std::pow(options.factor, static_cast<double>(step / options.every));
          }};
}

Rate cosine_decay(CosineDecayOptions options) {
  LIPGRAD_CHECK(options.steps > 0 && options.min_lr >= 0,
                "cosine_decay: steps {} and min_lr {}; expects steps > 0 and min_lr >= 0",
                options.steps, options.min_lr);
  return {"cosine", [options](std::int64_t step, double base) {
            if (step >= options.steps) return options.min_lr;
            const double part = static_cast<double>(step) / static_cast<double>(options.steps);
            return options.min_lr +
                   (base - options.min_lr) * (1 + std::cos(std::numbers::pi * part)) / 2;
          }};
}

Rate linear_warmup(LinearWarmupOptions options, Rate then) {
  LIPGRAD_CHECK(options.steps > 0 && options.start_factor >= 0 && options.start_factor <= 1,
                "linear_warmup: steps {} and start_factor {}; expects steps > 0 and a factor in "
                "[0, 1]",
                options.steps, options.start_factor);
  LIPGRAD_CHECK(then.at, "linear_warmup: the rate that follows is empty");
  return {"warmup+" + then.kind,
          [options, at = std::move(then.at)](std::int64_t step, double base) {
            if (step >= options.steps) return at(step - options.steps, base);
            const double part = static_cast<double>(step) / static_cast<double>(options.steps);
            return base * (options.start_factor + (1 - options.start_factor) * part);
          }};
}

LrSchedule::LrSchedule(Optimizer& optimizer, Rate rate)
    : Schedule(optimizer), rate_(std::move(rate)), base_(optimizer.lr()) {
  LIPGRAD_CHECK(rate_.at, "schedule: the rate is empty");
  optimizer.set_lr(rate_.at(0, base_));
}

void LrSchedule::step() {
  ++step_;
  optimizer().set_lr(rate_.at(step_, base_));
}

StateValues LrSchedule::state() const { return {{"step", step_}, {"base_lr", base_}}; }

void LrSchedule::restore(const StateValues& values) {
  step_ = std::get<std::int64_t>(values.at("step"));
  base_ = std::get<double>(values.at("base_lr"));
  optimizer().set_lr(rate_.at(step_, base_));
}

ReduceOnPlateau::ReduceOnPlateau(Optimizer& optimizer, ReduceOnPlateauOptions options)
    : Schedule(optimizer), options_(options) {
  LIPGRAD_CHECK(options.factor >= 0 && options.factor < 1,
                "reduce_on_plateau: factor {} is not in [0, 1)", options.factor);
  LIPGRAD_CHECK(options.patience >= 0 && options.cooldown >= 0 && options.min_lr >= 0,
                "reduce_on_plateau: patience {}, cooldown {} and min_lr {} must be >= 0",
                options.patience, options.cooldown, options.min_lr);
  best_ = options.maximize ? -std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::infinity();
}

bool ReduceOnPlateau::is_better(double metric) const {
  const double sign = options_.maximize ? -1 : 1;
  // In torch's relative form the margin is a factor on the best value, so it turns round when that
  // is negative.
  if (options_.relative) return sign * metric < sign * best_ * (1 - sign * options_.threshold);
  return sign * metric < sign * best_ - options_.threshold;
}

void ReduceOnPlateau::step(double metric) {
  if (is_better(metric)) {
    best_ = metric;
    bad_steps_ = 0;
  } else {
    ++bad_steps_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_steps_ = 0;
  }
  if (bad_steps_ <= options_.patience) return;
  const double before = optimizer().lr();
  const double after = std::max(before * options_.factor, options_.min_lr);
  if (before - after > options_.min_change) optimizer().set_lr(after);
  cooldown_left_ = options_.cooldown;
  bad_steps_ = 0;
}

StateValues ReduceOnPlateau::state() const {
  return {{"best", best_}, {"bad_steps", bad_steps_}, {"cooldown_left", cooldown_left_}};
}

void ReduceOnPlateau::restore(const StateValues& values) {
  best_ = std::get<double>(values.at("best"));
  bad_steps_ = std::get<std::int64_t>(values.at("bad_steps"));
  cooldown_left_ = std::get<std::int64_t>(values.at("cooldown_left"));
}

}  // namespace lipgrad
