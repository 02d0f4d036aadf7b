#include <lipgrad/models/training_state.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include <lipgrad/core/check.h>
#include <lipgrad/core/checkpoint.h>

namespace lipgrad {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

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

}  // namespace

Snapshot::Snapshot(const Module& module) {
  for (const auto& [path, parameter] : module.named_parameters())
    parameters_.push_back(parameter->value().clone());
  for (const auto& [path, buffer] : module.named_buffers())
    buffers_.push_back(buffer->value().clone());
}

void Snapshot::restore(Module& module) const {
  std::size_t i = 0, j = 0;
  for (auto& [path, parameter] : module.named_parameters()) parameter->set_value(parameters_[i++]);
  for (auto& [path, buffer] : module.named_buffers()) buffer->set_value(buffers_[j++]);
}

RunFiles::RunFiles(const std::string& directory)
    : last_path_((fs::path(directory) / "last.lip").string()),
      best_path_((fs::path(directory) / "best.lip").string()) {
  std::error_code error;
  fs::create_directories(directory, error);
  LIPGRAD_CHECK(fs::is_directory(directory), "{}: cannot be created as a directory: {}", directory,
                error ? error.message() : "a file is in the way");
}

bool RunFiles::has_run() const { return fs::exists(last_path_); }

// best.lip first: it is then never older than what last.lip says of it, and a run that resumes
// from last.lip comes to the same best epoch again.
void RunFiles::save(const Task& task, const TrainOptions& options, const Optimizer& optimizer,
                    const Schedule* schedule, const Generator& rng, const WeightAverage* average,
                    TrainingState& state) const {
  const TrainResult& result = state.result;
  const EpochState& epoch = state.epoch;
  if (!state.best_saved) {
    std::optional<Snapshot> current;
    if (state.best_weights) {
      current.emplace(task.model);
      state.best_weights->restore(task.model);
    }
    SaveOptions best{.step = result.best_epoch * task.steps,
                     .epoch = result.best_epoch,
                     .config = options.config};
    best.metadata["metrics"] = to_text(result.best);
    save_checkpoint(best_path_, task.model, best);
    if (current) current->restore(task.model);
    state.best_saved = true;
  }
  SaveOptions last{.optimizer = &optimizer,
                   .schedule = schedule,
                   .generator = &rng,
                   .step = result.epochs * task.steps + epoch.step,
                   .epoch = result.epochs,
                   .config = options.config};
  if (average) last.tensors = average->state();
  last.metadata["best_epoch"] = std::to_string(result.best_epoch);
  last.metadata["best_metrics"] = to_text(result.best);
  last.metadata["last_metrics"] = to_text(result.last);
  if (epoch.step > 0)
    last.metadata["epoch_in_progress"] = Json{
        {"step", epoch.step},
        {"steps", task.steps},
        {"draw", epoch.draw},
        {"loss", fmt::format("{:a}", epoch.loss)},
        {"losses", epoch.losses}}.dump();
  save_checkpoint(last_path_, task.model, last);
}

void RunFiles::load(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                    Schedule* schedule, Generator& rng, WeightAverage* average,
                    TrainingState& state) const {
  const CheckpointInfo info = read_checkpoint_info(last_path_);
  LIPGRAD_CHECK(info.config == options.config, "{}: the run here had other settings: {}",
                last_path_, differences(info.config, options.config));
  const auto entry = [&](const char* key) -> const std::string& {
    const auto found = info.metadata.find(key);
    LIPGRAD_CHECK(found != info.metadata.end(),
                  "{}: not a training run's checkpoint: it lacks '{}'", last_path_, key);
    return found->second;
  };
  TrainResult& result = state.result;
  EpochState& epoch = state.epoch;
  try {
    result.best_epoch = std::stoll(entry("best_epoch"));
    result.best = from_text(entry("best_metrics"));
    result.last = from_text(entry("last_metrics"));
    if (info.metadata.contains("epoch_in_progress")) {
      const Json json = Json::parse(entry("epoch_in_progress"));
      epoch = {json.at("step").get<std::int64_t>(), json.at("draw").get<std::uint64_t>(),
               std::strtod(json.at("loss").get<std::string>().c_str(), nullptr),
               json.at("losses").get<std::int64_t>()};
      const auto steps = json.at("steps").get<std::int64_t>();
      LIPGRAD_CHECK(
          steps == task.steps && epoch.step > 0 && epoch.step < steps,
          "{}: stopped in an epoch after {} of {} steps; the task now has {} steps an epoch",
          last_path_, epoch.step, steps, task.steps);
    }
  } catch (const std::exception& error) {
    if (dynamic_cast<const Error*>(&error)) throw;
    fail("{}: not a training run's checkpoint: {}", last_path_, error.what());
  }
  if (keeps_best(options) && result.best_epoch > 0) {
    load_checkpoint(best_path_, task.model);
    state.best_weights.emplace(task.model);
  }
  std::map<std::string, Tensor> averages;
  if (average) averages = average->state();
  load_checkpoint(last_path_, task.model,
                  {.optimizer = &optimizer,
                   .schedule = schedule,
                   .generator = &rng,
                   .tensors = average ? &averages : nullptr});
  if (average) average->load_state(averages);
  result.epochs = info.epoch;
  state.best_saved = true;
}

}  // namespace lipgrad
