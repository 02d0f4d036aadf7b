#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/models/image_classification.h>
#include <lipgrad/models/node_classification.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/training.h"
#include "lipgrad/vision_training.h"

namespace lipgrad::cli {
namespace {

struct Options {
  std::string checkpoint, data, json, device = "cpu";
};

using Json = nlohmann::json;

struct Measured {
  std::string data;
  std::vector<Metric> metrics;
};

Measured measure_gnn(const Options& o, const Json& config, Device device) {
  GnnSettings settings = gnn_settings_of(config, o.checkpoint);
  if (!o.data.empty()) settings.data = o.data;
  const NodeData data = load(settings).to(device);
  const std::unique_ptr<Gnn> model = make_gnn(settings, data);
  model->to(device);
  load_checkpoint(o.checkpoint, *model);
  return {data.name, read(node_classification(*model, data).evaluate())};
}

Measured measure_vision(const Options& o, const Json& config, Device device) {
  TrainedVision trained = load_vision(o.checkpoint, config, device);
  if (!o.data.empty()) trained.settings.data = o.data;
  const ImageData data = load(trained.settings);
  if (data.train->info().channels != trained.images.channels ||
      data.train->classes() != static_cast<std::int64_t>(trained.images.class_names.size()))
    throw Error(fmt::format("{}: images of {} classes and {} channels; the model knows {} and {}",
                            trained.settings.data, data.train->classes(),
                            data.train->info().channels, trained.images.class_names.size(),
                            trained.images.channels));
  Measured measured{data.train->info().name, {}};
  const auto measure = [&](const std::shared_ptr<const ImageSet>& images, const char* part) {
    if (!images) return;
    ImageLoader loader(images, {.batch_size = trained.settings.batch_size,
                                .train = false,
                                .evaluation = evaluation_options(trained.settings),
                                .skip_corrupt = trained.settings.skip_corrupt});
    for (const Metric& metric :
         read(measure_image_classification(*trained.model, loader, part, device)))
      measured.metrics.push_back(metric);
    tell_corrupt(loader, part);
  };
  measure(data.train, "train");
  measure(data.validation, "valid");
  measure(data.test, "test");
  return measured;
}

int run(const Options& o) {
  if (!o.json.empty()) check_writable(o.json);
  const Device device = parse_device(o.device);
  const Json config =
      Json::parse(read_checkpoint_info(o.checkpoint).config, nullptr, /*exceptions=*/false);
  const auto [data, metrics] =
      is_vision(config) ? measure_vision(o, config, device) : measure_gnn(o, config, device);
  Table table({"measure", "value"});
  Json json = {{"checkpoint", o.checkpoint}, {"data", data}};
  for (const Metric& metric : metrics) {
    const bool share = !metric.name.ends_with("loss");
    table.add_row({metric.name, share ? fmt::format("{:.1f} %", 100 * metric.value)
                                      : fmt::format("{:.4g}", metric.value)});
    json[metric.name] = metric.value;
  }
  std::fputs(table.str().c_str(), stdout);
  if (!o.json.empty()) write_json(o.json, json);
  return success;
}

}  // namespace

void add_eval(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("eval", "Measure a checkpoint of `lipgrad train` on its data set");
  command->add_option("checkpoint", o->checkpoint, "A .lip file, such as best.lip")->required();
  command->add_option("--data", o->data, "Another data set, as `lipgrad train` takes it");
  add_device(*command, o->device);
  command->add_option("--json", o->json, "Also write the results to this file");
  command->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
