#include "lipgrad/sweep_models.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

bool has(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw("--" + name) != nullptr;
}

bool sets(const Settings& settings, const std::string& name) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const auto& setting) { return setting.first == name; });
}

// Whether it is a setting of some model, if not of this one.
bool is_setting_elsewhere(const std::string& name) {
  static const std::set<std::string> all = [] {
    std::set<std::string> names;
    for_each_train_command([&](const CLI::App& command) {
      for (const CLI::Option* option : command.get_options())
        names.insert(option->get_lnames().begin(), option->get_lnames().end());
    });
    return names;
  }();
  return all.contains(name);
}

void leave_out_foreign(Settings& settings, const Settings& own, const CLI::App& command) {
  std::erase_if(settings, [&](const auto& setting) {
    return !has(command, setting.first) && !sets(own, setting.first) &&
           is_setting_elsewhere(setting.first);
  });
}

// Of a model of graphs: it has one pass over nodes and edges for each layer and epoch.
double estimate(const Json& config, const NodeData& data) {
  const double nodes = static_cast<double>(data.graph.num_nodes()),
               edges = nodes + static_cast<double>(data.graph.num_edges()),
               width = config.value("heads", 1.0) * config.at("hidden").get<double>(),
               layers = config.at("layers").get<double>(),
               epochs = config.at("epochs").get<double>();
  const double layer = nodes * width * (1.3e-10 * width + 8e-9) + edges * width * 2.5e-9;
  return epochs * (2e-3 + layers * layer) + 0.1;
}

// Of a model of images: multiply-adds, three times as many in training as in evaluation.
double estimate(const VisionConfiguration& configuration, const ImageClassifier& model,
                const ImageData& data) {
  double cost = 0, evaluated = 0;
  for (const ModuleCost& part : model.multiply_adds())
    cost += static_cast<double>(part.multiply_adds);
  for (const auto& set : {data.validation, data.test})
    if (set) evaluated += static_cast<double>(set->size());
  const VisionSettings& s = configuration.settings;
  const auto epochs = static_cast<double>(s.epochs);
  const double images = 3 * epochs * static_cast<double>(data.train->size()) +
                        evaluated * epochs / static_cast<double>(configuration.evaluate_every);
  return images * (8e-11 * cost + 2e-5) + 1;
}

// The command of a run's model, filled with its settings.
template <class Configuration_>
void refill(CLI::App& command, Configuration_& configuration, Json config) {
  config.erase("log-gradients");
  add_configuration(command, configuration);
  fill(command, from_json(config, "sweep"), "sweep");
}

}  // namespace

std::vector<std::string> sweep_models() {
  std::vector<std::string> names = model_names();
  const std::vector<std::string> images = vision_model_names();
  names.insert(names.end(), images.begin(), images.end());
  return names;
}

bool is_image_model(const std::string& name) {
  const std::vector<std::string> images = vision_model_names();
  return std::find(images.begin(), images.end(), name) != images.end();
}

void for_each_train_command(const std::function<void(const CLI::App&)>& f) {
  for (const std::string& model : model_names()) {
    CLI::App command("", model);
    Configuration configuration(model);
    add_configuration(command, configuration);
    f(command);
  }
  CLI::App command("", "vision");
  VisionConfiguration configuration;
  add_configuration(command, configuration);
  f(command);
}

Json complete_config(Settings settings, const Settings& own, const std::string& where) {
  std::string model = "gat";
  for (const auto& [name, value] : settings)
    if (name == "model") model = value;
  const auto models = sweep_models();
  if (std::find(models.begin(), models.end(), model) == models.end())
    throw Error(fmt::format("{}: there is no model '{}'; there are: {}", where, model,
                            fmt::join(models, ", ")));
  if (is_image_model(model)) {
    CLI::App command("", "vision");
    VisionConfiguration configuration;
    add_configuration(command, configuration);
    leave_out_foreign(settings, own, command);
    complete(command, configuration, settings, where);
    return to_json(command, configuration, configuration.settings.seed);
  }
  std::erase_if(settings, [](const auto& setting) { return setting.first == "model"; });
  CLI::App command("", model);
  Configuration configuration(model);
  add_configuration(command, configuration);
  leave_out_foreign(settings, own, command);
  complete(command, configuration, settings, where);
  return to_json(command, configuration, configuration.settings.seed);
}

std::vector<std::string> train_words(const Json& config) {
  const auto model = config.at("model").get<std::string>();
  const bool images = is_image_model(model);
  std::vector<std::string> words{"train", images ? "vision" : model};
  for (const auto& [name, value] : config.items())
    if (!value.is_null() && (images || name != "model"))
      words.push_back(fmt::format("--{}={}", name,
                                  value.is_string() ? value.get<std::string>() : value.dump()));
  return words;
}

double RunCheck::operator()(const PlannedRun& run) {
  const auto model = run.config.at("model").get<std::string>();
  const auto key = [&](std::initializer_list<const char*> names) {
    std::string text;
    for (const char* name : names)
      if (run.config.contains(name)) text += run.config.at(name).dump() + " ";
    return text;
  };
  if (is_image_model(model)) {
    CLI::App command("", "vision");
    VisionConfiguration configuration;
    refill(command, configuration, run.config);
    const VisionSettings& s = configuration.settings;
    // Which images are chosen is the seed's choice, and here of no account.
    const std::string data = key({"data", "validation", "train-images", "test-images"});
    auto at = images_.find(data);
    if (at == images_.end()) at = images_.emplace(data, load(s)).first;
    const ImageSet& train = *at->second.train;
    const auto classifier = make_vision_model(s, train.info().channels, train.classes());
    return estimate(configuration, *classifier, at->second);
  }
  CLI::App command("", model);
  Configuration configuration(model);
  Json config = run.config;
  config.erase("model");
  refill(command, configuration, config);
  const std::string data = key({"data", "features"});
  auto at = graphs_.find(data);
  if (at == graphs_.end()) at = graphs_.emplace(data, load(configuration.settings)).first;
  make_gnn(configuration.settings, at->second);
  return estimate(run.config, at->second);
}

}  // namespace lipgrad::cli
