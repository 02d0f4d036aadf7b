#include "lipgrad/training.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>
#include <lipgrad/models/batched_training.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

std::atomic<bool> stop{false};

// The first signal lets the epoch end and a checkpoint be written, the second one ends at once.
void on_signal(int signal) {
  stop = true;
  std::signal(signal, SIG_DFL);
}

std::unique_ptr<Schedule> make_schedule(const GnnSettings& settings, Optimizer& optimizer) {
  if (settings.schedule == "plateau")
    return std::make_unique<ReduceOnPlateau>(optimizer, ReduceOnPlateauOptions{});
  if (settings.schedule == "cosine")
    return std::make_unique<LrSchedule>(
        optimizer, cosine_decay({.steps = std::max<std::int64_t>(1, settings.num_epochs())}));
  return nullptr;
}

// What is trained: on the whole graph at once, or on pieces of it.
Task make_task(const GnnSettings& s, Gnn& model, const NodeData& data) {
  if (s.parts > 1 && !s.fanouts.empty())
    throw Error("train: --parts and --fanouts are two ways to cut a graph; give one of them");
  if (s.parts > 1 && s.partition == "metis")
    return node_classification(model, data,
                               fixed_parts(data, metis_partition(data.graph, s.parts)));
  if (s.parts > 1) return node_classification(model, data, random_parts(data, s.parts));
  if (!s.fanouts.empty())
    return node_classification(model, data,
                               sampled_neighborhoods(data, parse_fanouts(s.fanouts), s.batch_size));
  return node_classification(model, data);
}

}  // namespace

Selection selection(const std::string& name) {
  return name == "score" ? Selection::score : name == "loss" ? Selection::loss : Selection::last;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, layer] : gnn_names()) names.push_back(name);
  return names;
}

void add_configuration(CLI::App& command, Configuration& configuration) {
  command.option_defaults()->always_capture_default();
  command.add_option("--preset", configuration.preset, "Settings that go together, see below")
      ->check(CLI::IsMember(preset_names()));
  add_gnn_settings(command, configuration.settings);
  command.option_defaults()->always_capture_default();
  command
      .add_option("--evaluate-every", configuration.evaluate_every,
                  "Epochs between evaluations; a CUDA device is not waited for in between")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command.add_flag("--tf32", configuration.tf32,
                   "Matrix products of CUDA devices on tensor cores, rounded to 10 bits");
}

void complete(CLI::App& command, Configuration& configuration, const Settings& settings,
              const std::string& where) {
  fill(command, settings, where);
  const GnnSettings& s = configuration.settings;
  const bool layers = command.get_option("--layers")->count() > 0;
  fill(command,
       preset(configuration.preset, s.model.layer,
              layers ? std::optional(s.model.layers) : std::nullopt, s.data),
       "preset " + configuration.preset);
}

Json to_json(const CLI::App& command, const Configuration& configuration, std::uint64_t seed) {
  const GnnSettings& settings = configuration.settings;
  Json config = {{"model", command.get_name()}};
  for (const char* group : {data_group, model_group, training_group})
    config.update(to_json(command, group));
  config["seed"] = seed;
  config["epochs"] = settings.num_epochs();
  config["missing-seed"] =
      settings.missing > 0 ? Json(settings.missing_seed.value_or(settings.seed)) : Json();
  if (configuration.evaluate_every != 1) config["evaluate-every"] = configuration.evaluate_every;
  if (configuration.tf32) config["tf32"] = true;
  return config;
}

void fill_from_checkpoint(CLI::App& command, const Json& config, const std::string& where) {
  Settings given = from_json(config, where);
  std::erase_if(given, [](const auto& setting) { return setting.first == "model"; });
  fill(command, given, where);
}

GnnSettings gnn_settings_of(const Json& config, const std::string& where) {
  const auto model = config.is_object() ? config.value("model", Json()) : Json();
  const std::vector<std::string> models = model_names();
  if (!model.is_string() ||
      std::find(models.begin(), models.end(), model.get<std::string>()) == models.end())
    throw Error(where + ": not a checkpoint of `lipgrad train`: it does not say which model it is");
  Configuration configuration(model.get<std::string>());
  CLI::App command("", model.get<std::string>());
  add_configuration(command, configuration);
  fill_from_checkpoint(command, config, where);
  return configuration.settings;
}

Run train_run(const CLI::App& command, const Configuration& configuration, const NodeData& data,
              std::uint64_t seed, const RunOptions& how) {
  const GnnSettings& s = configuration.settings;
  const std::unique_ptr<Gnn> model = make_gnn(s, data);
  Generator rng(seed);
  model->initialize(rng);
  model->to(data.features.device());
  Adam optimizer(*model,
                 {.lr = s.lr, .weight_decay = s.weight_decay, .groups = gnn_groups(s.groups)});
  const std::unique_ptr<Schedule> schedule = make_schedule(s, optimizer);
  TrainOptions options;
  options.epochs = s.num_epochs();
  options.select = selection(s.select);
  options.patience = s.patience;
  options.out = how.out;
  options.resume = how.resume;
  options.checkpoint_every = how.checkpoint_every;
  options.evaluate_every = configuration.evaluate_every;
  options.cuda_graph = how.cuda_graph;
  options.log_gradients_every = how.log_gradients;
  Json config = to_json(command, configuration, seed);
  if (s.schedule != "cosine") config.erase("epochs");
  options.config = config.dump(-1, ' ', false, Json::error_handler_t::replace);
  options.progress = how.progress;
  options.interrupted = stop_asked;
  const Task task = make_task(s, *model, data);
  return {seed, task.score, train(task, optimizer, schedule.get(), rng, options)};
}

void catch_stop_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool stop_asked() { return stop; }

double find(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  return NAN;
}

Json to_json(const Run& run) {
  const auto& [seed, score, r] = run;
  return {{"seed", seed},
          {"score", score},
          {"epochs", r.epochs},
          {"best_epoch", r.best_epoch},
          {"valid_" + score, find(r.best, "valid_" + score)},
          {"valid_loss", find(r.best, "valid_loss")},
          {"test_" + score, find(r.best, "test_" + score)},
          {"test_" + score + "_last", find(r.last, "test_" + score)},
          {"train_" + score + "_last", find(r.last, "train_" + score)},
          {"seconds_per_epoch", r.seconds_per_epoch}};
}

}  // namespace lipgrad::cli
