#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include <fmt/format.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/memory.h>
#include <lipgrad/graph/datasets.h>
#include <lipgrad/models/gat.h>
#include <lipgrad/models/node_classification.h>
#include <lipgrad/models/trainer.h>
#include <lipgrad/ops/optimizers.h>

#include "lipgrad/commands.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string data = "cora", features = "auto", select = "accuracy", out, json;
  GatOptions model;
  double lr = 5e-3, weight_decay = 5e-4;
  std::int64_t epochs = 200, patience = 0, runs = 1, checkpoint_every = 20;
  std::uint64_t seed = 0;
  bool resume = false, quiet = false;
};

std::atomic<bool> stop_asked{false};

// The first signal lets the epoch end and a checkpoint be written, the second one ends at once.
void on_signal(int signal) {
  stop_asked = true;
  std::signal(signal, SIG_DFL);
}

Selection selection(const std::string& name) {
  return name == "accuracy" ? Selection::accuracy
         : name == "loss"   ? Selection::loss
                            : Selection::last;
}

Json config_of(const Options& o, const NodeData& data, std::uint64_t seed) {
  return {{"model", "gat"},
          {"data", data.name},
          {"features", data.features.is_sparse() ? "sparse" : "dense"},
          {"layers", o.model.layers},
          {"heads", o.model.heads},
          {"hidden", o.model.hidden},
          {"out_heads", o.model.out_heads},
          {"dropout", o.model.dropout},
          {"attention_dropout", o.model.attention_dropout},
          {"negative_slope", o.model.negative_slope},
          {"optimizer", "adam"},
          {"lr", o.lr},
          {"weight_decay", o.weight_decay},
          {"select", o.select},
          {"seed", seed}};
}

struct Run {
  std::uint64_t seed;
  TrainResult result;
};

Run train_once(const Options& o, const NodeData& data, std::int64_t run) {
  const std::uint64_t seed = o.seed + static_cast<std::uint64_t>(run);
  GatOptions model_options = o.model;
  model_options.in = data.features.cols();
  model_options.out = data.num_classes;
  Gat model(model_options);
  Generator rng(seed);
  model.initialize(rng);
  Adam optimizer(model, {.lr = o.lr, .weight_decay = o.weight_decay});
  TrainOptions options;
  options.epochs = o.epochs;
  options.select = selection(o.select);
  options.patience = o.patience;
  if (!o.out.empty())
    options.out =
        o.runs == 1 ? o.out : (std::filesystem::path(o.out) / fmt::format("run{}", run)).string();
  options.resume = o.resume;
  options.checkpoint_every = o.checkpoint_every;
  options.config = config_of(o, data, seed).dump();
  options.progress = !o.quiet;
  options.interrupted = [] { return stop_asked.load(); };
  return {seed, train(node_classification(model, data), optimizer, nullptr, rng, options)};
}

// Mean and sample standard deviation.
std::pair<double, double> mean_and_std(const std::vector<double>& values) {
  double mean = 0, square = 0;
  for (double v : values) mean += v / static_cast<double>(values.size());
  for (double v : values) square += (v - mean) * (v - mean);
  return {mean, values.size() > 1 ? std::sqrt(square / static_cast<double>(values.size() - 1)) : 0};
}

int run(const Options& o) {
  if (o.resume && o.out.empty())
    throw Error("train: --resume needs --out DIR, the directory of the run to continue");
  NodeDataOptions data_options;
  if (o.features != "auto") data_options.sparse_features = o.features == "sparse";
  const NodeData data = load_node_data(o.data, data_options);
  if (!o.quiet)
    std::fprintf(
        stderr,
        "%s: %lld nodes, %lld edges, %lld %s features, %lld classes; %lld training, %lld "
        "validation, %lld test nodes\n",
        data.name.c_str(), static_cast<long long>(data.graph.num_nodes()),
        static_cast<long long>(data.graph.num_edges()),
        static_cast<long long>(data.features.cols()),
        data.features.is_sparse() ? "sparse" : "dense", static_cast<long long>(data.num_classes),
        static_cast<long long>(data.train.numel()), static_cast<long long>(data.val.numel()),
        static_cast<long long>(data.test.numel()));
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);

  Table table({"seed", "epochs", "best epoch", "valid", "test", "test at the end", "ms an epoch"});
  std::vector<double> tests, lasts;
  Json json = {
      {"config", config_of(o, data, o.seed)}, {"epochs", o.epochs}, {"runs", Json::array()}};
  for (std::int64_t i = 0; i < o.runs; ++i) {
    const Run one = train_once(o, data, i);
    const TrainResult& r = one.result;
    if (r.interrupted) {
      std::fprintf(stderr, "stopped after epoch %lld", static_cast<long long>(r.epochs));
      if (!o.out.empty())
        std::fprintf(stderr, "; the same command with --resume goes on from there");
      std::fprintf(stderr, "\n");
      return interrupted;
    }
    double test = NAN, last = NAN, valid = NAN;
    if (r.best_epoch > 0) {
      test = r.at_best("test_accuracy");
      valid = r.at_best("valid_accuracy");
      for (const Metric& m : r.last)
        if (m.name == "test_accuracy") last = m.value;
    }
    tests.push_back(test);
    lasts.push_back(last);
    table.add_row({std::to_string(one.seed), std::to_string(r.epochs), std::to_string(r.best_epoch),
                   fmt::format("{:.1f} %", 100 * valid), fmt::format("{:.1f} %", 100 * test),
                   fmt::format("{:.1f} %", 100 * last),
                   fmt::format("{:.2f}", 1e3 * r.seconds_per_epoch)});
    json["runs"].push_back({{"seed", one.seed},
                            {"epochs", r.epochs},
                            {"best_epoch", r.best_epoch},
                            {"valid_accuracy", valid},
                            {"test_accuracy", test},
                            {"test_accuracy_last", last},
                            {"seconds_per_epoch", r.seconds_per_epoch}});
  }
  const auto [mean, deviation] = mean_and_std(tests);
  std::fputs(table.str().c_str(), stdout);
  if (o.runs > 1)
    std::printf("\ntest accuracy over %lld seeds: %.2f %% +- %.2f (last epoch: %.2f %%)\n",
                static_cast<long long>(o.runs), 100 * mean, 100 * deviation,
                100 * mean_and_std(lasts).first);
  if (!o.json.empty()) {
    json["test_accuracy_mean"] = mean;
    json["test_accuracy_std"] = deviation;
    json["peak_tensor_bytes"] = memory::counters().peak;
    const std::string text = json.dump(2) + "\n";
    write_file(o.json, std::as_bytes(std::span(text.data(), text.size())));
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
  gat->add_option("--data", o->data, "Data set: a name, 'generated', or a .npz file");
  gat->add_option("--features", o->features, "How node features are kept")
      ->check(CLI::IsMember({"auto", "dense", "sparse"}));
  gat->add_option("--layers", o->model.layers, "Attention layers")->check(CLI::Range(1, 1000));
  gat->add_option("--heads", o->model.heads, "Heads of every layer but the last")
      ->check(CLI::Range(1, 1024));
  gat->add_option("--out-heads", o->model.out_heads, "Heads of the last layer, which are averaged")
      ->check(CLI::Range(1, 1024));
  gat->add_option("--hidden", o->model.hidden, "Features a head")->check(CLI::Range(1, 1 << 16));
  gat->add_option("--dropout", o->model.dropout, "Dropout on features")
      ->check(CLI::Range(0.0, 1.0));
  gat->add_option("--attention-dropout", o->model.attention_dropout, "Dropout on attention weights")
      ->check(CLI::Range(0.0, 1.0));
  gat->add_option("--negative-slope", o->model.negative_slope, "Slope of LeakyReLU in the scores");
  gat->add_option("--lr", o->lr, "Learning rate of Adam")->check(CLI::NonNegativeNumber);
  gat->add_option("--weight-decay", o->weight_decay, "L2 penalty, added to the gradient")
      ->check(CLI::NonNegativeNumber);
  gat->add_option("--epochs", o->epochs, "Epochs")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  gat->add_option("--patience", o->patience,
                  "Stop after so many epochs without a better one; 0: never")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  gat->add_option("--select", o->select,
                  "Which epoch's weights count: best validation accuracy, lowest validation loss, "
                  "or the last")
      ->check(CLI::IsMember({"accuracy", "loss", "last"}));
  gat->add_option("--seed", o->seed, "Seed of the first run; run r uses seed + r")
      ->check(CLI::NonNegativeNumber);
  gat->add_option("--runs", o->runs, "Runs, each with its own seed")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
  gat->add_option("--out", o->out,
                  "Directory for checkpoints and metrics.jsonl (run0, run1, ... below it if there "
                  "are several)");
  gat->add_option("--checkpoint-every", o->checkpoint_every, "Epochs between checkpoints")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  gat->add_flag("--resume", o->resume, "Continue the run in --out where it stopped");
  gat->add_option("--json", o->json, "Also write the results to this file");
  gat->add_flag("--quiet", o->quiet, "No progress");
  gat->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
