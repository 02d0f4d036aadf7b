#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/cuda_status.h>

#include "lipgrad/commands.h"
#include "lipgrad/runs.h"
#include "lipgrad/training.h"
#include "lipgrad/vision_training.h"

namespace lipgrad::cli {
namespace {

struct Options {
  explicit Options(const std::string& model) : configuration(model) {}

  Configuration configuration;
  RunsOptions runs;
};

void describe(const NodeData& data, const GnnSettings& settings) {
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

int run(CLI::App& command, Options& o) {
  RunsOptions& runs = o.runs;
  complete(command, o.configuration, runs.config.empty() ? Settings{} : read_settings(runs.config),
           runs.config);
  const GnnSettings& s = o.configuration.settings;
  check_runs(runs);
  const Device device = parse_device(runs.device);
  if (o.configuration.tf32) set_matmul_precision(MatmulPrecision::tf32);
  const NodeData data = load(s).to(device);
  if (!runs.quiet) describe(data, s);
  return run_all(runs, s.seed, to_json(command, o.configuration, s.seed), device,
                 [&](std::uint64_t seed, const RunOptions& how) {
                   return train_run(command, o.configuration, data, seed, how);
                 });
}

// One subcommand a model, each with the options its layers have.
void add_model(CLI::App& train, const std::string& name, const char* what, int& exit) {
  auto o = std::make_shared<Options>(name);
  CLI::App* command = train.add_subcommand(name, what);
  add_config(*command, o->runs);
  add_configuration(*command, o->configuration);
  add_runs(*command, o->runs);
  command->add_flag("--cuda-graph", o->runs.run.cuda_graph, "Launch each step as one CUDA graph");
  command->footer(describe_presets(o->configuration.settings.model.layer));
  command->callback([o, command, &exit] { exit = run(*command, *o); });
}

struct VisionOptions {
  VisionConfiguration configuration;
  RunsOptions runs;
};

void describe(const ImageData& data) {
  const ImageSetInfo& info = data.train->info();
  const auto count = [](const std::shared_ptr<const ImageSet>& set) {
    return set ? set->size() : 0;
  };
  fmt::print(stderr, "{}: {} training, {} validation, {} test images, {} classes, {}\n", info.name,
             data.train->size(), count(data.validation), count(data.test), data.train->classes(),
             info.channels == 1 ? "grey" : "coloured");
}

int run_vision(CLI::App& command, VisionOptions& o) {
  RunsOptions& runs = o.runs;
  complete(command, o.configuration, runs.config.empty() ? Settings{} : read_settings(runs.config),
           runs.config);
  const VisionSettings& s = o.configuration.settings;
  check_runs(runs);
  const Device device = parse_device(runs.device);
  if (o.configuration.tf32) set_matmul_precision(MatmulPrecision::tf32);
  const ImageData data = load(s);
  if (!runs.quiet) describe(data);
  return run_all(runs, s.seed, to_json(command, o.configuration, data.train->info(), s.seed),
                 device, [&](std::uint64_t seed, const RunOptions& how) {
                   return train_run(command, o.configuration, data, seed, device, how);
                 });
}

void add_vision(CLI::App& train, int& exit) {
  auto o = std::make_shared<VisionOptions>();
  o->runs.run.checkpoint_every = 1;
  CLI::App* command =
      train.add_subcommand("vision", "Transformers of images: LipsFormer, Swin, CSwin, ViT");
  add_config(*command, o->runs);
  add_configuration(*command, o->configuration);
  add_runs(*command, o->runs);
  command->footer(describe_vision_presets());
  command->callback([o, command, &exit] { exit = run_vision(*command, *o); });
}

}  // namespace

void add_train(CLI::App& app, int& exit) {
  CLI::App* train = app.add_subcommand("train", "Train a graph network or a model of images");
  train->require_subcommand(1);
  add_model(*train, "gcn", "Graph convolutions (Kipf, Welling)", exit);
  add_model(*train, "ggnn", "Gated graph layers (Li et al.)", exit);
  add_model(*train, "gat", "Graph attention (Velickovic et al.)", exit);
  add_model(*train, "gatv2",
            "Graph attention whose scores are computed of both ends (Brody et al.)", exit);
  add_model(*train, "transformer", "Graph transformer (Shi et al., UniMP)", exit);
  add_vision(*train, exit);
}

}  // namespace lipgrad::cli
