#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/models/node_classification.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/training.h"

namespace lipgrad::cli {
namespace {

struct Options {
  std::string checkpoint, data, json, device = "cpu";
};

// The configuration that the checkpoint was trained with.
Configuration configuration_of(const std::string& path) {
  const auto config =
      nlohmann::json::parse(read_checkpoint_info(path).config, nullptr, /*exceptions=*/false);
  const auto model =
      config.is_object() ? config.value("model", nlohmann::json()) : nlohmann::json();
  const std::vector<std::string> models = model_names();
  if (!model.is_string() ||
      std::find(models.begin(), models.end(), model.get<std::string>()) == models.end())
    throw Error(path + ": not a checkpoint of `lipgrad train`: it does not say which model it is");
  Configuration configuration(model.get<std::string>());
  CLI::App command("", model.get<std::string>());
  add_configuration(command, configuration);
  fill_from_checkpoint(command, config, path);
  return configuration;
}

int run(const Options& o) {
  GnnSettings settings = configuration_of(o.checkpoint).settings;
  if (!o.data.empty()) settings.data = o.data;
  if (!o.json.empty()) check_writable(o.json);
  const Device device = parse_device(o.device);
  const NodeData data = load(settings).to(device);
  const std::unique_ptr<Gnn> model = make_gnn(settings, data);
  model->to(device);
  load_checkpoint(o.checkpoint, *model);
  const std::vector<Metric> metrics = read(node_classification(*model, data).evaluate());
  Table table({"measure", "value"});
  nlohmann::json json = {{"checkpoint", o.checkpoint}, {"data", data.name}};
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
  command->add_option("--data", o->data, "Another data set: a name, 'generated', or a .npz file");
  add_device(*command, o->device);
  command->add_option("--json", o->json, "Also write the results to this file");
  command->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
