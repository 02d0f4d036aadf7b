#include <lipgrad/models/trainer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include <lipgrad/core/check.h>
#include <lipgrad/core/cuda_graph.h>
#include <lipgrad/core/events.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/models/training_state.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/schedules.h>
#include <lipgrad/ops/weight_average.h>

namespace lipgrad {
namespace {

std::optional<double> find(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  return std::nullopt;
}

double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  const std::optional<double> value = find(metrics, name);
  LIPGRAD_CHECK(value, "train: the task measures no '{}'", name);
  return *value;
}

bool is_better(Selection select, const std::string& score, const std::vector<Metric>& now,
               const std::vector<Metric>& best) {
  if (best.empty() || select == Selection::last) return true;
  const double loss = value_of(now, "valid_loss"), best_loss = value_of(best, "valid_loss");
  if (select == Selection::loss) return loss < best_loss;
  const std::string name = "valid_" + score;
  const double value = value_of(now, name), best_value = value_of(best, name);
  return value > best_value || (value == best_value && loss < best_loss);
}

// The device of the model's first parameter.
Device device_of(const Module& model) {
  const std::vector<Parameter*> parameters = model.parameters();
  return parameters.empty() ? cpu_device : parameters[0]->value().device();
}

void move_rate(Schedule* schedule) {
  if (auto* rate = dynamic_cast<LrSchedule*>(schedule)) rate->step();
}

void tell_plateau(Schedule* schedule, const std::vector<Metric>& metrics) {
  if (auto* plateau = dynamic_cast<ReduceOnPlateau*>(schedule))
    plateau->step(value_of(metrics, "valid_loss"));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Trainer {
 public:
  Trainer(const Task& task, Optimizer& optimizer, Schedule* schedule, Generator& rng,
          const TrainOptions& options)
      : task_(task), optimizer_(optimizer), schedule_(schedule), rng_(rng), options_(options) {
    check(options, task);
    if (options.cuda_graph) graph_.emplace(device_of(task.model));
    if (options.average_decay > 0) average_.emplace(task.model, options.average_decay);
    if (options.out.empty()) return;
    files_.emplace(options.out);
    if (files_->has_run()) {
      LIPGRAD_CHECK(
          options.resume,
          "{}: there is a run here already; continue it with --resume or choose another directory",
          options.out);
      files_->load(task, options, optimizer, schedule, rng, average(), state_);
    }
    const std::string log_path = (std::filesystem::path(options.out) / "metrics.jsonl").string();
    log_.emplace(result_.epochs > 0 ? JsonlWriter::resume(log_path, result_.epochs)
                                    : JsonlWriter(log_path));
    if (finished()) return;
    events_.emplace(options.out);
    events_->start(result_.epochs + 1);
  }

  TrainResult run() {
    if (task_.start && !finished()) task_.start(result_.epochs, epoch_.step);
    if (options_.progress)
      progress_.emplace(Progress::Options{.total = options_.epochs * task_.steps,
                                          .start = result_.epochs * task_.steps + epoch_.step,
                                          .unit = task_.steps > 1 ? "step" : "epoch"});
    std::vector<double> seconds;
    while (!finished() && !result_.interrupted) {
      const bool whole = epoch_.step == 0;
      const auto began = Clock::now();
      Pending pending = run_epoch();
      if (epoch_.step > 0) break;  // interrupted
      const bool evaluate =
          result_.epochs % options_.evaluate_every == 0 || result_.epochs >= options_.epochs;
      if (evaluate) {
        check_weights();
        measure();
        tell_plateau(schedule_, result_.last);
      }
      if (!options_.schedule_per_update) move_rate(schedule_);
      pending.lr = optimizer_.lr();
      pending_.push_back(std::move(pending));
      if (whole) seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count());
      if (evaluate) report(true);
      result_.interrupted = asks_to_stop();
      if (++epochs_unsaved_ >= options_.checkpoint_every && !finished() && !result_.interrupted)
        save(evaluate);
    }
    if (epochs_unsaved_ > 0 || (result_.interrupted && epoch_.step > 0))
      save(false);
    else
      report(false);
    if (progress_) progress_->finish();
    if (events_) events_->flush();
    result_.seconds_per_epoch = median(std::move(seconds));
    if (state_.best_weights && !result_.interrupted) state_.best_weights->restore(task_.model);
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // What an epoch leaves to be reported.
  struct Pending {
    std::vector<Tensor> losses;  // of its steps, on the device, until they are read
    double loss = 0;             // the sum of those that were,
    std::int64_t count = 0;      // and how many
    std::optional<GradNorms> gradients;
    std::int64_t epoch = 0;
    double lr = 0;
  };

  static void check(const TrainOptions& options, const Task& task) {
    LIPGRAD_CHECK(options.epochs >= 0, "train: the number of epochs must be >= 0, got {}",
                  options.epochs);
    LIPGRAD_CHECK(options.evaluate_every >= 1, "train: evaluate_every must be >= 1, got {}",
                  options.evaluate_every);
    LIPGRAD_CHECK(options.checkpoint_every >= 1, "train: checkpoint_every must be >= 1, got {}",
                  options.checkpoint_every);
    LIPGRAD_CHECK(options.log_gradients_every >= 0,
                  "train: log_gradients_every must be >= 0, got {}", options.log_gradients_every);
    LIPGRAD_CHECK(!options.resume || !options.out.empty(),
                  "train: resume needs an output directory");
    LIPGRAD_CHECK(task.steps >= 1, "train: an epoch must have at least one step, got {}",
                  task.steps);
    LIPGRAD_CHECK(!options.cuda_graph || task.steps == 1,
                  "train: cuda_graph is for epochs of one step, which always has the same shapes; "
                  "this task has {} steps",
                  task.steps);
    LIPGRAD_CHECK(options.accumulate >= 1, "train: accumulate must be >= 1, got {}",
                  options.accumulate);
    LIPGRAD_CHECK(options.clip_norm >= 0, "train: clip_norm must be >= 0, got {}",
                  options.clip_norm);
    LIPGRAD_CHECK(options.clip_norm == 0 || !options.cuda_graph,
                  "train: clip_norm asks the device at every update, which cuda_graph cannot");
  }

  // All epochs are done, or none of the last `patience` ones was better.
  bool finished() const {
    return result_.epochs >= options_.epochs ||
           (options_.patience > 0 && result_.epochs - result_.best_epoch >= options_.patience);
  }

  WeightAverage* average() { return average_ ? &*average_ : nullptr; }

  // Evaluates the weights that count and keeps them if they are the best ones.
  void measure() {
    std::optional<Snapshot> trained;
    if (average_) {
      trained.emplace(task_.model);
      average_->copy_to_module();
    }
    result_.last = read(task_.evaluate());
    if (is_better(options_.select, task_.score, result_.last, result_.best)) {
      result_.best = result_.last;
      result_.best_epoch = result_.epochs;
      if (keeps_best(options_)) state_.best_weights.emplace(task_.model);
      state_.best_saved = false;
    }
    if (trained) trained->restore(task_.model);
  }

  bool asks_to_stop() const { return options_.interrupted && options_.interrupted(); }

  // The steps of an epoch from epoch_.step on. At its end epoch_ is that of the next one; when
  // interrupted before, it says where.
  Pending run_epoch() {
    Pending pending;
    pending.epoch = result_.epochs + 1;
    begin_epoch(pending);
    while (epoch_.step < task_.steps) {
      step(pending, !task_.begin_step || task_.begin_step(epoch_.step, rng_));
      if (++epoch_.step == task_.steps) break;
      show_step(pending);
      if (epoch_.step % options_.accumulate != 0) continue;
      result_.interrupted = asks_to_stop();
      const bool late = files_ && Clock::now() - saved_at_ >=
                                      std::chrono::duration<double>(options_.checkpoint_seconds);
      if (!result_.interrupted && !late) continue;
      settle(pending);
      epoch_.loss = pending.loss;
      epoch_.losses = pending.count;
      if (result_.interrupted) return pending;
      save(false);
    }
    LIPGRAD_CHECK(pending.count > 0 || !pending.losses.empty(),
                  "train: no step of epoch {} has anything to learn from", pending.epoch);
    epoch_ = {};
    ++result_.epochs;
    return pending;
  }

  void begin_epoch(Pending& pending) {
    if (epoch_.step == 0) {
      epoch_.draw = rng_.next_draw();
      if (task_.begin_epoch) task_.begin_epoch(rng_);
      return;
    }
    // Within an epoch: what its beginning drew is drawn again.
    const std::uint64_t draw = rng_.next_draw();
    rng_.restore(rng_.seed(), epoch_.draw);
    if (task_.begin_epoch) task_.begin_epoch(rng_);
    rng_.restore(rng_.seed(), draw);
    pending.loss = epoch_.loss;
    pending.count = epoch_.losses;
  }

  // learn: false for a step that the task leaves out.
  void step(Pending& pending, bool learn) {
    const bool last = epoch_.step + 1 == task_.steps;
    const bool log_gradients = last && log_ && options_.log_gradients_every > 0 &&
                               result_.epochs % options_.log_gradients_every == 0;
    has_gradient_ = has_gradient_ || learn;
    const bool update = has_gradient_ && (last || (epoch_.step + 1) % options_.accumulate == 0);
    const auto run = [&] {
      if (learn) backward(pending);
      if (!update) return;
      if (log_gradients) pending.gradients = grad_norms(task_.model);
      if (options_.clip_norm > 0) clip_grad_norm(task_.model, options_.clip_norm);
      optimizer_.step();
      optimizer_.zero_grad();
      if (average_) average_->update();
    };
    if (graph_ && !log_gradients)
      graph_->run(run);
    else
      run();
    if (!update) return;
    has_gradient_ = false;
    if (options_.schedule_per_update) move_rate(schedule_);
  }

  // Adds the gradients of this step's share of the update.
  void backward(Pending& pending) {
    Tape tape;
    const Tensor loss = task_.loss(Mode::train(rng_));
    pending.losses.push_back(loss.detach());
    // On the CPU the loss is known now, and a bad one costs the weights nothing.
    if (loss.device().is_cpu()) settle(pending);
    const std::int64_t first = epoch_.step - epoch_.step % options_.accumulate;
    const std::int64_t count = std::min(options_.accumulate, task_.steps - first);
    if (count == 1)
      tape.backward(loss);
    else
      tape.backward(
          loss, full(loss.shape(), 1.0 / static_cast<double>(count), loss.dtype(), loss.device()));
  }

  // Reads the losses that are still on the device.
  static void settle(Pending& pending) {
    for (const Tensor& each : pending.losses) {
      const double loss = each.item();
      LIPGRAD_CHECK(std::isfinite(loss),
                    "train: the loss is {} in epoch {}; try a smaller learning rate",
                    std::isnan(loss) ? NAN : loss, pending.epoch);
      pending.loss += loss;
      ++pending.count;
    }
    pending.losses.clear();
  }

  // An update may spoil the weights after the last loss that was looked at: they would be measured,
  // and saved in the place of good ones.
  void check_weights() const {
    const NoGrad off;
    for (const Parameter* parameter : task_.model.parameters())
      LIPGRAD_CHECK(std::isfinite(sum(parameter->value()).item()),
                    "train: the weights are not finite in epoch {}; try a smaller learning rate",
                    epoch_.step > 0 ? result_.epochs + 1 : result_.epochs);
  }

  // Progress within an epoch, with the mean loss so far where it is known.
  void show_step(const Pending& pending) {
    if (!progress_) return;
    std::vector<LogValue> values{{"epoch", pending.epoch}};
    if (pending.count > 0)
      values.emplace_back("loss", pending.loss / static_cast<double>(pending.count));
    progress_->update(result_.epochs * task_.steps + epoch_.step, values);
  }

  // Reads and logs the epochs since the last report, the metrics with the last one if it was
  // evaluated.
  void report(bool evaluated) {
    for (Pending& pending : pending_) {
      settle(pending);
      std::vector<LogValue> values{{"loss", pending.loss / static_cast<double>(pending.count)}};
      if (evaluated && pending.epoch == result_.epochs)
        for (const Metric& metric : result_.last) values.emplace_back(metric.name, metric.value);
      if (progress_) {
        std::vector<LogValue> shown = values;
        if (task_.steps > 1) shown.insert(shown.begin(), {"epoch", pending.epoch});
        progress_->update(pending.epoch * task_.steps, shown);
      }
      if (!log_) continue;
      values.emplace_back("lr", pending.lr);
      if (pending.gradients) {
        values.emplace_back("gradient_norm", pending.gradients->total);
        for (const auto& [path, norm] : pending.gradients->parameters)
          values.emplace_back("gradient_norm/" + path, norm);
      }
      log_->write(pending.epoch, values);
      std::vector<Scalar> scalars;
      for (const LogValue& value : values)
        scalars.push_back({value.name, std::get<double>(value.value)});
      events_->scalars(pending.epoch, scalars);
    }
    pending_.clear();
  }

  void save(bool evaluated) {
    report(evaluated);
    epochs_unsaved_ = 0;
    if (!files_) return;
    check_weights();
    // What is older than the checkpoint will not be logged again.
    events_->flush();
    files_->save(task_, options_, optimizer_, schedule_, rng_, average(), state_);
    saved_at_ = Clock::now();
  }

  const Task& task_;
  Optimizer& optimizer_;
  Schedule* schedule_;
  Generator& rng_;
  const TrainOptions& options_;
  TrainingState state_;
  TrainResult& result_ = state_.result;
  EpochState& epoch_ = state_.epoch;
  bool has_gradient_ = false;  // of steps since the last update
  std::optional<WeightAverage> average_;
  std::int64_t epochs_unsaved_ = 0;
  Clock::time_point saved_at_ = Clock::now();
  std::vector<Pending> pending_;
  std::optional<Progress> progress_;
  std::optional<RunFiles> files_;
  std::optional<JsonlWriter> log_;
  std::optional<EventWriter> events_;  // unless no epoch is left to do
  std::optional<CudaGraph> graph_;
};

}  // namespace

std::vector<Metric> read(const std::vector<Measurement>& measurements) {
  std::vector<Metric> metrics;
  for (const Measurement& m : measurements) metrics.push_back({m.name, m.value.item() / m.divisor});
  return metrics;
}

double TrainResult::at_best(const std::string& name) const { return value_of(best, name); }

TrainResult train(const Task& task, Optimizer& optimizer, Schedule* schedule, Generator& rng,
                  const TrainOptions& options) {
  return Trainer(task, optimizer, schedule, rng, options).run();
}

}  // namespace lipgrad
