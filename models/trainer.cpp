#include <lipgrad/models/trainer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include <lipgrad/core/check.h>
#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/cuda_graph.h>
#include <lipgrad/core/events.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/clip_grad.h>
#include <lipgrad/ops/schedules.h>

namespace lipgrad {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

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

// The parameters and buffers of a module, copied.
class Snapshot {
 public:
  explicit Snapshot(const Module& module) {
    for (const auto& [path, parameter] : module.named_parameters())
      parameters_.push_back(parameter->value().clone());
    for (const auto& [path, buffer] : module.named_buffers())
      buffers_.push_back(buffer->value().clone());
  }
  void restore(Module& module) const {
    std::size_t i = 0, j = 0;
    for (auto& [path, parameter] : module.named_parameters())
      parameter->set_value(parameters_[i++]);
    for (auto& [path, buffer] : module.named_buffers()) buffer->set_value(buffers_[j++]);
  }

 private:
  std::vector<Tensor> parameters_, buffers_;
};

// Metrics in a checkpoint: JSON writes doubles so that they read back to the same bits, but knows
// neither NaN nor infinities.
std::string to_text(const std::vector<Metric>& metrics) {
  Json json = Json::array();
  for (const Metric& metric : metrics)
    json.push_back({metric.name, fmt::format("{:a}", metric.value)});
  return json.dump();
}

std::vector<Metric> from_text(const std::string& text) {
  std::vector<Metric> metrics;
  for (const Json& entry : Json::parse(text))
    metrics.push_back({entry.at(0).get<std::string>(),
                       std::strtod(entry.at(1).get<std::string>().c_str(), nullptr)});
  return metrics;
}

std::string differences(const std::string& saved, const std::string& ours) {
  const Json a = Json::parse(saved, nullptr, false), b = Json::parse(ours, nullptr, false);
  std::string text;
  const auto add = [&](const std::string& key, const Json& was, const Json& is) {
    // Of what a damaged file may hold only plain values are written out: nothing recurses.
    const auto plain = [](const Json& x) {
      return x.is_structured() ? "{...}" : x.dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    text += fmt::format("{}{} was {}, is {}", text.empty() ? "" : "; ", key, plain(was), plain(is));
  };
  if (!a.is_object() || !b.is_object()) return "they cannot be compared";
  for (const auto& [key, value] : a.items())
    if (b.value(key, Json()) != value) add(key, value, b.value(key, Json()));
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) add(key, Json(), value);
  return text;
}

// metrics: null in epochs without an evaluation.
void step_schedule(Schedule* schedule, const std::vector<Metric>* metrics) {
  if (auto* rate = dynamic_cast<LrSchedule*>(schedule)) rate->step();
  if (auto* plateau = dynamic_cast<ReduceOnPlateau*>(schedule); plateau && metrics)
    plateau->step(value_of(*metrics, "valid_loss"));
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
    LIPGRAD_CHECK(options.epochs >= 0, "train: the number of epochs must be >= 0, got {}",
                  options.epochs);
    LIPGRAD_CHECK(options.evaluate_every >= 1, "train: evaluate_every must be >= 1, got {}",
                  options.evaluate_every);
    if (options.cuda_graph) graph_.emplace(device_of(task.model));
    LIPGRAD_CHECK(options.checkpoint_every >= 1, "train: checkpoint_every must be >= 1, got {}",
                  options.checkpoint_every);
    LIPGRAD_CHECK(options.log_gradients_every >= 0,
                  "train: log_gradients_every must be >= 0, got {}", options.log_gradients_every);
    if (options.out.empty()) {
      LIPGRAD_CHECK(!options.resume, "train: resume needs an output directory");
      return;
    }
    std::error_code error;
    fs::create_directories(options.out, error);
    LIPGRAD_CHECK(fs::is_directory(options.out), "{}: cannot be created as a directory: {}",
                  options.out, error ? error.message() : "a file is in the way");
    last_path_ = (fs::path(options.out) / "last.lip").string();
    best_path_ = (fs::path(options.out) / "best.lip").string();
    const std::string log_path = (fs::path(options.out) / "metrics.jsonl").string();
    if (fs::exists(last_path_)) {
      LIPGRAD_CHECK(
          options.resume,
          "{}: there is a run here already; continue it with --resume or choose another directory",
          options.out);
      load();
    }
    log_.emplace(result_.epochs > 0 ? JsonlWriter::resume(log_path, result_.epochs)
                                    : JsonlWriter(log_path));
    if (finished()) return;
    events_.emplace(options.out);
    events_->start(result_.epochs + 1);
  }

  TrainResult run() {
    std::optional<Progress> progress;
    if (options_.progress)
      progress.emplace(
          Progress::Options{.total = options_.epochs, .start = result_.epochs, .unit = "epoch"});
    std::vector<double> seconds;
    std::int64_t since_checkpoint = 0;
    while (!finished() && !result_.interrupted) {
      const auto began = std::chrono::steady_clock::now();
      Pending pending = step();
      pending.epoch = ++result_.epochs;
      const bool evaluate =
          result_.epochs % options_.evaluate_every == 0 || result_.epochs >= options_.epochs;
      if (evaluate) result_.last = read(task_.evaluate());
      step_schedule(schedule_, evaluate ? &result_.last : nullptr);
      pending.lr = optimizer_.lr();
      pending_.push_back(std::move(pending));
      if (evaluate && is_better(options_.select, task_.score, result_.last, result_.best)) {
        result_.best = result_.last;
        result_.best_epoch = result_.epochs;
        if (options_.select != Selection::last) best_weights_.emplace(task_.model);
        best_saved_ = false;
      }
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
      if (evaluate) report(true, progress);
      result_.interrupted = options_.interrupted && options_.interrupted();
      if (++since_checkpoint >= options_.checkpoint_every && !finished() && !result_.interrupted) {
        report(evaluate, progress);
        save();
        since_checkpoint = 0;
      }
    }
    report(false, progress);
    if (progress) progress->finish();
    if (since_checkpoint > 0) save();
    if (events_) events_->flush();
    result_.seconds_per_epoch = median(std::move(seconds));
    if (best_weights_ && !result_.interrupted) best_weights_->restore(task_.model);
    return result_;
  }

 private:
  // All epochs are done, or none of the last `patience` ones was better.
  bool finished() const {
    return result_.epochs >= options_.epochs ||
           (options_.patience > 0 && result_.epochs - result_.best_epoch >= options_.patience);
  }

  // What an epoch leaves to be reported.
  struct Pending {
    Tensor loss;  // on the device
    std::optional<GradNorms> gradients;
    std::int64_t epoch = 0;
    double lr = 0;
  };

  Pending step() {
    Pending pending;
    const bool log_gradients = log_ && options_.log_gradients_every > 0 &&
                               result_.epochs % options_.log_gradients_every == 0;
    const auto run = [&] {
      Tape tape;
      const Tensor loss = task_.loss(Mode::train(rng_));
      pending.loss = loss.detach();
      // On the CPU the loss is known now, and a bad one costs the weights nothing.
      if (loss.device().is_cpu()) check_loss(loss.item(), result_.epochs + 1);
      tape.backward(loss);
      if (log_gradients) pending.gradients = grad_norms(task_.model);
      optimizer_.step();
      optimizer_.zero_grad();
    };
    if (graph_ && !log_gradients)
      graph_->run(run);
    else
      run();
    return pending;
  }

  static void check_loss(double loss, std::int64_t epoch) {
    LIPGRAD_CHECK(std::isfinite(loss),
                  "train: the loss is {} in epoch {}; try a smaller learning rate", loss, epoch);
  }

  // Reads and logs the epochs since the last report, the metrics with the last one if it was
  // evaluated.
  void report(bool evaluated, std::optional<Progress>& progress) {
    for (const Pending& pending : pending_) {
      const double loss = pending.loss.item();
      check_loss(loss, pending.epoch);
      std::vector<LogValue> values{{"loss", loss}};
      if (evaluated && pending.epoch == result_.epochs)
        for (const Metric& metric : result_.last) values.emplace_back(metric.name, metric.value);
      if (progress) progress->update(pending.epoch, values);
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

  // best.lip first: it is then never older than what last.lip says of it, and a run that resumes
  // from last.lip comes to the same best epoch again.
  void save() {
    if (options_.out.empty()) return;
    // What is older than the checkpoint will not be logged again.
    events_->flush();
    if (!best_saved_) {
      std::optional<Snapshot> current;
      if (best_weights_) {
        current.emplace(task_.model);
        best_weights_->restore(task_.model);
      }
      SaveOptions best{
          .step = result_.best_epoch, .epoch = result_.best_epoch, .config = options_.config};
      best.metadata["metrics"] = to_text(result_.best);
      save_checkpoint(best_path_, task_.model, best);
      if (current) current->restore(task_.model);
      best_saved_ = true;
    }
    SaveOptions last{.optimizer = &optimizer_,
                     .schedule = schedule_,
                     .generator = &rng_,
                     .step = result_.epochs,
                     .epoch = result_.epochs,
                     .config = options_.config};
    last.metadata["best_epoch"] = std::to_string(result_.best_epoch);
    last.metadata["best_metrics"] = to_text(result_.best);
    last.metadata["last_metrics"] = to_text(result_.last);
    save_checkpoint(last_path_, task_.model, last);
  }

  void load() {
    const CheckpointInfo info = read_checkpoint_info(last_path_);
    LIPGRAD_CHECK(info.config == options_.config, "{}: the run here had other settings: {}",
                  last_path_, differences(info.config, options_.config));
    const auto entry = [&](const char* key) -> const std::string& {
      const auto found = info.metadata.find(key);
      LIPGRAD_CHECK(found != info.metadata.end(),
                    "{}: not a training run's checkpoint: it lacks '{}'", last_path_, key);
      return found->second;
    };
    try {
      result_.best_epoch = std::stoll(entry("best_epoch"));
      result_.best = from_text(entry("best_metrics"));
      result_.last = from_text(entry("last_metrics"));
    } catch (const std::exception& error) {
      if (dynamic_cast<const Error*>(&error)) throw;
      fail("{}: not a training run's checkpoint: {}", last_path_, error.what());
    }
    if (options_.select != Selection::last && result_.best_epoch > 0) {
      load_checkpoint(best_path_, task_.model);
      best_weights_.emplace(task_.model);
    }
    load_checkpoint(last_path_, task_.model,
                    {.optimizer = &optimizer_, .schedule = schedule_, .generator = &rng_});
    result_.epochs = info.epoch;
    best_saved_ = true;
  }

  const Task& task_;
  Optimizer& optimizer_;
  Schedule* schedule_;
  Generator& rng_;
  const TrainOptions& options_;
  TrainResult result_;
  std::optional<Snapshot> best_weights_;
  bool best_saved_ = true;
  std::string last_path_, best_path_;
  std::optional<JsonlWriter> log_;
  std::optional<EventWriter> events_;  // unless no epoch is left to do
  std::vector<Pending> pending_;
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
