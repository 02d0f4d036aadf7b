#include "lipgrad/runs.h"

#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/memory.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"

namespace lipgrad::cli {

void add_config(CLI::App& command, RunsOptions& o) {
  command.option_defaults()->always_capture_default();
  command.add_option("--config", o.config,
                     "TOML file of settings, by the names of these options: layers = 30");
}

void add_runs(CLI::App& command, RunsOptions& o) {
  command.option_defaults()->group("Runs and results");
  command.add_option("--runs", o.runs, "Runs, each with its own seed")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
  command.add_option(
      "--out", o.out,
      "Directory for checkpoints, metrics.jsonl and TensorBoard's events (run0, run1, "
      "... below it if there are several)");
  command.add_option("--checkpoint-every", o.run.checkpoint_every, "Epochs between checkpoints")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command
      .add_option("--log-gradients", o.run.log_gradients,
                  "Log the norm of every parameter's gradient every so many epochs; 0: never")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command.add_flag("--resume", o.run.resume, "Continue the run in --out where it stopped");
  command.add_option("--json", o.json, "Also write the results to this file");
  add_device(command, o.device);
  command.add_flag("--quiet", o.quiet, "No progress");
}

void check_runs(const RunsOptions& o) {
  if (o.run.resume && o.out.empty())
    throw Error("train: --resume needs --out DIR, the directory of the run to continue");
  if (o.json.empty()) return;
  std::error_code error;  // which training tells
  if (!o.out.empty()) std::filesystem::create_directories(o.out, error);
  check_writable(o.json);
}

int run_all(RunsOptions& o, std::uint64_t first_seed, const nlohmann::json& config, Device device,
            const std::function<Run(std::uint64_t, const RunOptions&)>& train) {
  using Json = nlohmann::json;
  o.run.progress = !o.quiet;
  catch_stop_signals();

  Table table({"seed", "epochs", "best epoch", "valid", "test", "test at the end", "ms an epoch"});
  std::vector<double> tests, lasts, seconds;
  Json json = {{"config", config}, {"runs", Json::array()}};
  std::string score = "score";
  const auto percent = [](double x) {
    return std::isnan(x) ? std::string("-") : fmt::format("{:.1f} %", 100 * x);
  };
  for (std::int64_t i = 0; i < o.runs; ++i) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
    o.run.out = o.out.empty() || o.runs == 1
                    ? o.out
                    : (std::filesystem::path(o.out) / fmt::format("run{}", i)).string();
    const Run one = train(seed, o.run);
    const TrainResult& r = one.result;
    if (r.interrupted) {
      std::fprintf(stderr, "stopped after epoch %lld", static_cast<long long>(r.epochs));
      if (!o.out.empty())
        std::fprintf(stderr, "; the same command with --resume goes on from there");
      std::fprintf(stderr, "\n");
      return interrupted;
    }
    score = one.score;
    tests.push_back(find(r.best, "test_" + score));
    lasts.push_back(find(r.last, "test_" + score));
    seconds.push_back(r.seconds_per_epoch);
    table.add_row({std::to_string(seed), std::to_string(r.epochs), std::to_string(r.best_epoch),
                   percent(find(r.best, "valid_" + score)), percent(tests.back()),
                   percent(lasts.back()), fmt::format("{:.2f}", 1e3 * r.seconds_per_epoch)});
    json["runs"].push_back(to_json(one));
  }
  const auto [mean, deviation] = mean_and_std(tests);
  const double last_mean = mean_and_std(lasts).first;
  std::fputs(table.str().c_str(), stdout);
  if (o.runs > 1)
    std::printf("\ntest %s over %lld seeds: %.2f %% +- %.2f (last epoch: %.2f %%)\n", score.c_str(),
                static_cast<long long>(o.runs), 100 * mean, 100 * deviation, 100 * last_mean);
  if (o.json.empty()) return success;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  json["test_" + score + "_mean"] = mean;
  json["test_" + score + "_std"] = deviation;
  json["test_" + score + "_last_mean"] = last_mean;
  json["seconds_per_epoch"] = median(seconds);
  json["device"] = device.str();
  json["peak_tensor_bytes"] = memory::counters(device).peak;
  json["peak_memory_bytes"] = std::int64_t{usage.ru_maxrss} * 1024;
  write_json(o.json, json);
  return success;
}

}  // namespace lipgrad::cli
