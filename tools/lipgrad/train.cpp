#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>

#include "lipgrad/commands.h"
#include "lipgrad/gat_settings.h"
#include "lipgrad/results.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  GatSettings settings;
  std::string preset = "paper", config, out, json, device = "cpu";
  std::int64_t runs = 1, checkpoint_every = 20, evaluate_every = 1, log_gradients = 0;
  bool resume = false, quiet = false, cuda_graph = false, tf32 = false;
};

std::atomic<bool> stop_asked{false};

// The first signal lets the epoch end and a checkpoint be written, the second one ends at once.
void on_signal(int signal) {
  stop_asked = true;
  std::signal(signal, SIG_DFL);
}

Selection selection(const std::string& name) {
  return name == "accuracy" ? Selection::score : name == "loss" ? Selection::loss : Selection::last;
}

// Everything that decides what a run comes to. How long it is decides only with a cosine.
Json config_of(const CLI::App& command, const Options& o, std::uint64_t seed) {
  const GatSettings& settings = o.settings;
  Json config = {{"model", "gat"}};
  for (const char* group : {data_group, model_group, training_group})
    config.update(to_json(command, group));
  config["seed"] = seed;
  config["epochs"] = settings.num_epochs();
  if (settings.missing > 0) config["missing-seed"] = settings.missing_seed.value_or(settings.seed);
  if (o.evaluate_every != 1) config["evaluate-every"] = o.evaluate_every;
  if (o.tf32) config["tf32"] = true;
  return config;
}

std::unique_ptr<Schedule> make_schedule(const GatSettings& settings, Optimizer& optimizer) {
  if (settings.schedule == "plateau")
    return std::make_unique<ReduceOnPlateau>(optimizer, ReduceOnPlateauOptions{});
  if (settings.schedule == "cosine")
    return std::make_unique<LrSchedule>(
        optimizer, cosine_decay({.steps = std::max<std::int64_t>(1, settings.num_epochs())}));
  return nullptr;
}

struct Run {
  std::uint64_t seed;
  TrainResult result;
};

Run train_once(const CLI::App& command, const Options& o, const NodeData& data, std::int64_t run) {
  const GatSettings& s = o.settings;
  const std::uint64_t seed = s.seed + static_cast<std::uint64_t>(run);
  const std::unique_ptr<Gat> model = make_gat(s, data);
  Generator rng(seed);
  model->initialize(rng);
  model->to(data.features.device());
  Adam optimizer(*model,
                 {.lr = s.lr, .weight_decay = s.weight_decay, .groups = gat_groups(s.groups)});
  const std::unique_ptr<Schedule> schedule = make_schedule(s, optimizer);
  TrainOptions options;
  options.epochs = s.num_epochs();
  options.select = selection(s.select);
  options.patience = s.patience;
  if (!o.out.empty())
    options.out =
        o.runs == 1 ? o.out : (std::filesystem::path(o.out) / fmt::format("run{}", run)).string();
  options.resume = o.resume;
  options.checkpoint_every = o.checkpoint_every;
  options.evaluate_every = o.evaluate_every;
  options.cuda_graph = o.cuda_graph;
  options.log_gradients_every = o.log_gradients;
  Json config = config_of(command, o, seed);
  if (s.schedule != "cosine") config.erase("epochs");
  options.config = config.dump(-1, ' ', false, Json::error_handler_t::replace);
  options.progress = !o.quiet;
  options.interrupted = [] { return stop_asked.load(); };
  return {seed, train(node_classification(*model, data), optimizer, schedule.get(), rng, options)};
}

// Mean and sample standard deviation.
std::pair<double, double> mean_and_std(const std::vector<double>& values) {
  double mean = 0, square = 0;
  for (double v : values) mean += v / static_cast<double>(values.size());
  for (double v : values) square += (v - mean) * (v - mean);
  return {mean, values.size() > 1 ? std::sqrt(square / static_cast<double>(values.size() - 1)) : 0};
}

double find(const std::vector<Metric>& metrics, const char* name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  return NAN;
}

void describe(const NodeData& data, const GatSettings& settings) {
  std::string text = fmt::format(
      "{}: {} nodes, {} edges, {} {} features, {} classes; {} training, {} validation, {} test "
      "nodes\n",
      data.name, data.graph.num_nodes(), data.graph.num_edges(), data.features.cols(),
      data.features.is_sparse() ? "sparse" : "dense", data.num_classes, data.train.numel(),
      data.val.numel(), data.test.numel());
  if (settings.missing > 0)
    text += fmt::format("features of {:g} % of the nodes outside the training set are missing\n",
                        settings.missing);
  std::fputs(text.c_str(), stderr);
}

// Fills in what the command line left open: the file of settings, then the preset.
void complete(CLI::App& command, Options& o) {
  if (!o.config.empty()) fill(command, read_settings(o.config), o.config);
  const std::string where = "preset " + o.preset;
  const CLI::Option* layers = command.get_option("--layers");
  fill(command,
       preset(o.preset, layers->count() > 0 ? std::optional(o.settings.model.layers) : std::nullopt,
              o.settings.data),
       where);
}

int run(CLI::App& command, Options& o) {
  complete(command, o);
  const GatSettings& s = o.settings;
  if (o.resume && o.out.empty())
    throw Error("train: --resume needs --out DIR, the directory of the run to continue");
  if (!o.json.empty()) {
    std::error_code error;  // which training tells
    if (!o.out.empty()) std::filesystem::create_directories(o.out, error);
    check_writable(o.json);
  }
  const Device device = parse_device(o.device);
  if (o.tf32) set_matmul_precision(MatmulPrecision::tf32);
  const NodeData data = load(s).to(device);
  if (!o.quiet) describe(data, s);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);

  Table table({"seed", "epochs", "best epoch", "valid", "test", "test at the end", "ms an epoch"});
  std::vector<double> tests, lasts, seconds;
  Json json = {{"config", config_of(command, o, s.seed)}, {"runs", Json::array()}};
  const auto percent = [](double x) { return fmt::format("{:.1f} %", 100 * x); };
  for (std::int64_t i = 0; i < o.runs; ++i) {
    const Run one = train_once(command, o, data, i);
    const TrainResult& r = one.result;
    if (r.interrupted) {
      std::fprintf(stderr, "stopped after epoch %lld", static_cast<long long>(r.epochs));
      if (!o.out.empty())
        std::fprintf(stderr, "; the same command with --resume goes on from there");
      std::fprintf(stderr, "\n");
      return interrupted;
    }
    const double valid = find(r.best, "valid_accuracy");
    tests.push_back(find(r.best, "test_accuracy"));
    lasts.push_back(find(r.last, "test_accuracy"));
    seconds.push_back(r.seconds_per_epoch);
    table.add_row({std::to_string(one.seed), std::to_string(r.epochs), std::to_string(r.best_epoch),
                   percent(valid), percent(tests.back()), percent(lasts.back()),
                   fmt::format("{:.2f}", 1e3 * r.seconds_per_epoch)});
    json["runs"].push_back({{"seed", one.seed},
                            {"epochs", r.epochs},
                            {"best_epoch", r.best_epoch},
                            {"valid_accuracy", valid},
                            {"test_accuracy", tests.back()},
                            {"test_accuracy_last", lasts.back()},
                            {"train_accuracy_last", find(r.last, "train_accuracy")},
                            {"seconds_per_epoch", r.seconds_per_epoch}});
  }
  const auto [mean, deviation] = mean_and_std(tests);
  const double last_mean = mean_and_std(lasts).first;
  std::fputs(table.str().c_str(), stdout);
  if (o.runs > 1)
    std::printf("\ntest accuracy over %lld seeds: %.2f %% +- %.2f (last epoch: %.2f %%)\n",
                static_cast<long long>(o.runs), 100 * mean, 100 * deviation, 100 * last_mean);
  if (!o.json.empty()) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    json["test_accuracy_mean"] = mean;
    json["test_accuracy_std"] = deviation;
    json["test_accuracy_last_mean"] = last_mean;
    json["seconds_per_epoch"] = median(seconds);
    json["device"] = device.str();
    json["peak_tensor_bytes"] = memory::counters(device).peak;
    json["peak_memory_bytes"] = std::int64_t{usage.ru_maxrss} * 1024;
    write_json(o.json, json);
  }
  return success;
}

}  // namespace

void add_train(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* train = app.add_subcommand("train", "Train a reference model");
  train->require_subcommand(1);
  CLI::App* gat = train->add_subcommand("gat", "Graph attention network for node classification");
  gat->option_defaults()->always_capture_default();
  gat->add_option("--preset", o->preset, "Settings that go together, see below")
      ->check(CLI::IsMember(preset_names()));
  gat->add_option("--config", o->config,
                  "TOML file of settings, by the names of these options: layers = 30");
  add_gat_settings(*gat, o->settings);
  gat->option_defaults()->group("Runs and results");
  gat->add_option("--runs", o->runs, "Runs, each with its own seed")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
  gat->add_option("--out", o->out,
                  "Directory for checkpoints, metrics.jsonl and TensorBoard's events (run0, run1, "
                  "... below it if there are several)");
  gat->add_option("--checkpoint-every", o->checkpoint_every, "Epochs between checkpoints")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  gat->add_option("--evaluate-every", o->evaluate_every,
                  "Epochs between evaluations; a CUDA device is not waited for in between")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  gat->add_option("--log-gradients", o->log_gradients,
                  "Log the norm of every parameter's gradient every so many epochs; 0: never")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  gat->add_flag("--resume", o->resume, "Continue the run in --out where it stopped");
  gat->add_option("--json", o->json, "Also write the results to this file");
  add_device(*gat, o->device);
  gat->add_flag("--cuda-graph", o->cuda_graph, "Launch each step as one CUDA graph");
  gat->add_flag("--tf32", o->tf32,
                "Matrix products of CUDA devices on tensor cores, rounded to 10 bits");
  gat->add_flag("--quiet", o->quiet, "No progress");
  gat->footer(describe_presets());
  gat->callback([o, gat, &exit] { exit = run(*gat, *o); });
}

}  // namespace lipgrad::cli
