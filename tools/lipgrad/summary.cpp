#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/vision_settings.h"

namespace lipgrad::cli {
namespace {

struct Options {
  VisionSettings settings;
  std::int64_t channels = 3, classes = 1000, depth = 2;
  std::string json;
};

struct Row {
  std::string path;
  std::int64_t parameters = 0, multiply_adds = 0;
};

// The first `depth` words of a path; 0: all of it.
std::string shortened(const std::string& path, std::int64_t depth) {
  std::size_t end = 0;
  for (std::int64_t i = 0; depth == 0 || i < depth; ++i) {
    end = path.find('.', end);
    if (end == std::string::npos) return path;
    ++end;
  }
  return path.substr(0, end - 1);
}

// By module, in the order of its first parameter.
std::vector<Row> rows_of(const ImageClassifier& model, std::int64_t depth) {
  std::vector<Row> rows;
  std::map<std::string, std::size_t> number;
  const auto row = [&](const std::string& path) -> Row& {
    const auto [at, is_new] = number.try_emplace(shortened(path, depth), rows.size());
    if (is_new) rows.push_back({at->first});
    return rows[at->second];
  };
  for (const auto& [path, parameter] : model.named_parameters()) {
    const std::size_t dot = path.rfind('.');
    row(dot == std::string::npos ? path : path.substr(0, dot)).parameters += parameter->numel();
  }
  for (const ModuleCost& cost : model.multiply_adds())
    row(cost.path).multiply_adds += cost.multiply_adds;
  return rows;
}

// 4 977 524 736
std::string grouped(std::int64_t n) {
  std::string text = std::to_string(n);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), " ");
  return text;
}

int run(CLI::App& command, Options& o) {
  if (!o.json.empty()) check_writable(o.json);
  VisionSettings& s = o.settings;
  s.model = resolved_model(s.model, "paper");
  fill(command, vision_model_settings(s.model), "model " + s.model);
  if (s.model.ends_with("_micro")) {
    if (command.get_option("--channels")->count() == 0) o.channels = 1;
    if (command.get_option("--classes")->count() == 0) o.classes = 10;
  }
  const std::unique_ptr<ImageClassifier> model = make_vision_model(s, o.channels, o.classes);
  Table table({"module", "parameters", "multiply-adds"});
  nlohmann::json json = {{"model", s.model},
                         {"image", {o.channels, s.image_size, s.image_size}},
                         {"classes", o.classes},
                         {"modules", nlohmann::json::array()}};
  Row total;
  for (const Row& row : rows_of(*model, o.depth)) {
    total.parameters += row.parameters;
    total.multiply_adds += row.multiply_adds;
    table.add_row({row.path, grouped(row.parameters), grouped(row.multiply_adds)});
    json["modules"].push_back({{"module", row.path},
                               {"parameters", row.parameters},
                               {"multiply_adds", row.multiply_adds}});
  }
  table.add_row({"all", grouped(total.parameters), grouped(total.multiply_adds)});
  json["parameters"] = total.parameters;
  json["multiply_adds"] = total.multiply_adds;
  fmt::print("{}: one image of {} x {} x {}, {} classes\n\n{}", s.model, o.channels, s.image_size,
             s.image_size, o.classes, table.str());
  if (!o.json.empty()) write_json(o.json, json);
  return success;
}

}  // namespace

void add_summary(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "summary", "Show a model of images: parameters and multiply-adds, by module");
  command->option_defaults()->always_capture_default();
  command->add_option("model", o->settings.model, "A model's name")
      ->required()
      ->check(CLI::IsMember(vision_model_names()));
  command
      ->add_option("--image-size", o->settings.image_size,
                   "Height and width of the image [the model's]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 16));
  command->add_option("--channels", o->channels, "Of the image")->check(CLI::Range(1, 1024));
  command->add_option("--classes", o->classes, "Of the logits")->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--depth", o->depth,
                   "Modules are told apart by so many words of their paths; "
                   "0: by all")
      ->check(CLI::Range(0, 100));
  command->add_option("--json", o->json, "Also write it to this file");
  add_vision_model(*command, o->settings);
  command->callback([o, command, &exit] { exit = run(*command, *o); });
}

}  // namespace lipgrad::cli
