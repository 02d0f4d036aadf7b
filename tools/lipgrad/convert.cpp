#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/safetensors.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"
#include "lipgrad/training.h"
#include "lipgrad/vision_training.h"
#include "lipgrad/weight_names.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string from, to, names = "auto", model, config, data, classes, json;
  std::int64_t heads = 0, image_size = 0;
  std::vector<double> mean = {0.485, 0.456, 0.406}, deviation = {0.229, 0.224, 0.225};
  bool verbose = false;
};

constexpr const char* kConfig = "lipgrad.config";
constexpr const char* kNames = "lipgrad.names";

// What went where.
struct Report {
  struct Line {
    std::string file, lipgrad, dtype;
    Shape shape;  // in the file
  };
  std::string names, model;
  std::vector<Line> lines;
  std::vector<std::string> left_out;
};

// A model to be filled, and the configuration for its checkpoint.
struct Target {
  std::unique_ptr<Module> model;
  Json config;
};

std::vector<std::string> class_names(const Options& o, std::int64_t classes) {
  std::vector<std::string> names;
  if (!o.classes.empty()) {
    const auto bytes = read_file(o.classes, std::int64_t{1} << 26);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const std::string& line : CLI::detail::split(CLI::detail::trim_copy(text), '\n'))
      names.push_back(CLI::detail::trim_copy(line));
    if (static_cast<std::int64_t>(names.size()) != classes)
      throw Error(
          fmt::format("{}: {} lines, the model has {} classes", o.classes, names.size(), classes));
  }
  for (std::int64_t i = 0; o.classes.empty() && i < classes; ++i)
    names.push_back(fmt::format("class {}", i));
  return names;
}

// Settings in the order in which they count: those asked for, the named model's, the file's.
Settings settings_for(const Options& o, const Settings& inferred) {
  Settings all = o.config.empty() ? Settings{} : read_settings(o.config);
  if (o.heads > 0) all.emplace_back("heads", std::to_string(o.heads));
  if (o.image_size > 0) all.emplace_back("image-size", std::to_string(o.image_size));
  if (!o.data.empty()) all.emplace_back("data", o.data);
  if (!o.model.empty()) {
    all.emplace_back("model", o.model);
    const Settings model = vision_model_settings(o.model);
    all.insert(all.end(), model.begin(), model.end());
  }
  all.insert(all.end(), inferred.begin(), inferred.end());
  return all;
}

Target vision_target(const Options& o, const SafetensorsFile& file, const WeightNames& names) {
  const WeightSizes sizes = vision_sizes(file, names);
  VisionConfiguration configuration;
  configuration.preset = "paper";
  CLI::App command("", "vision");
  add_configuration(command, configuration);
  complete(command, configuration, settings_for(o, sizes.settings), o.from);
  ImageSetInfo images{.name = configuration.settings.data, .channels = sizes.in};
  images.class_names = class_names(o, sizes.out);
  for (std::int64_t c = 0; c < sizes.in; ++c) {
    const auto at = static_cast<std::size_t>(c);
    images.mean.push_back(o.mean[std::min(at, o.mean.size() - 1)]);
    images.stddev.push_back(o.deviation[std::min(at, o.deviation.size() - 1)]);
  }
  return {make_vision_model(configuration.settings, sizes.in, sizes.out),
          to_json(command, configuration, images, 0)};
}

Target gnn_target(const Options& o, const SafetensorsFile& file, const WeightNames& names) {
  const WeightSizes sizes = gnn_sizes(file, names, o.heads);
  if (!o.model.empty() || o.image_size > 0)
    throw Error(o.from + ": --model and --image-size are for models of images, its names are of " +
                names.family());
  Configuration configuration(names.model());
  CLI::App command("", names.model());
  add_configuration(command, configuration);
  Options rest = o;
  rest.heads = 0;  // among the sizes already, where they do not follow from shapes
  complete(command, configuration, settings_for(rest, sizes.settings), o.from);
  return {make_gnn(configuration.settings, sizes.in, sizes.out, sizes.edge_features),
          to_json(command, configuration, 0)};
}

// The model that `convert` wrote the file from.
Target own_target(const SafetensorsFile& file, const std::string& text, const WeightNames& names) {
  Json config = Json::parse(text, nullptr, /*exceptions=*/false);
  if (is_vision(config)) return {make_vision(file.path(), config).model, std::move(config)};
  const GnnSettings settings = gnn_settings_of(config, file.path());
  const WeightSizes sizes = gnn_sizes(file, names, settings.model.heads);
  return {make_gnn(settings, sizes.in, sizes.out, sizes.edge_features), std::move(config)};
}

std::string text_of(const std::string& name, const Shape& shape) {
  return fmt::format("{} {}", name, shape.str());
}

// Fills the model from the file. Every tensor of both is accounted for, or nothing is done.
void load(const SafetensorsFile& file, const WeightNames& names, Module& model, Report& report) {
  std::vector<std::string> missing, other, unused;
  std::set<std::string> used;
  const auto match = [&](const std::string& ours, DType dtype, const Shape& shape) {
    const std::string theirs = names.theirs(ours);
    const Shape expected = names.theirs(ours, shape);
    const auto* tensor = file.find(theirs);
    if (!tensor) {
      missing.push_back(text_of(theirs, expected));
      return;
    }
    used.insert(theirs);
    // A vector of attention may lie in the file as it does here.
    if (tensor->shape != expected && tensor->shape != shape)
      other.push_back(
          fmt::format("{}, expected {}", text_of(theirs, tensor->shape), expected.str()));
    else if (is_floating(dtype) && !is_floating(file.dtype_to_read(*tensor)))
      other.push_back(fmt::format("{} of {}", theirs, tensor->dtype));
    report.lines.push_back({theirs, ours, tensor->dtype, tensor->shape});
  };
  for (const auto& [path, p] : model.named_parameters()) match(path, p->dtype(), p->shape());
  for (const auto& [path, b] : model.named_buffers()) match(path, b->dtype(), b->shape());
  for (const auto& tensor : file.tensors()) {
    if (used.contains(tensor.name)) continue;
    if (names.is_derived(tensor.name))
      report.left_out.push_back(tensor.name);
    else
      unused.push_back(text_of(tensor.name, tensor.shape));
  }
  std::string problems;
  for (const auto& [what, list] :
       {std::pair{"missing", &missing}, {"of another shape", &other}, {"not used", &unused}})
    if (!list->empty()) problems += fmt::format("; {}: {}", what, fmt::join(*list, ", "));
  if (!problems.empty())
    throw Error(fmt::format("{}: does not fit a {} with the names of {}; nothing was written{}",
                            file.path(), report.model, names.family(), problems));
  const auto fill = [&](const std::string& ours, auto& target) {
    const Tensor value = file.read(names.theirs(ours)).to(target.dtype());
    target.set_value(value.alias(target.shape()));
  };
  for (const auto& [path, p] : model.named_parameters()) fill(path, *p);
  for (const auto& [path, b] : model.named_buffers()) fill(path, *b);
}

Report import_weights(const Options& o) {
  const SafetensorsFile file(o.from);
  const auto metadata = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  const std::string config = metadata(kConfig), own = metadata(kNames);
  const auto& families = WeightNames::families();
  const bool known = std::find(families.begin(), families.end(), own) != families.end();
  const WeightNames names = WeightNames::in_file(o.names == "auto" && known ? own : o.names, file);
  const bool as_written = !config.empty() && o.model.empty() && o.config.empty();
  if (names.family() == "lipgrad" && !as_written)
    throw Error(o.from +
                ": names of lipgrad tell a model only in files that `lipgrad convert` wrote");
  Target target = as_written                 ? own_target(file, config, names)
                  : names.is_graph_network() ? gnn_target(o, file, names)
                                             : vision_target(o, file, names);
  Report report{names.family(), target.config.value("model", ""), {}, {}};
  load(file, names, *target.model, report);
  save_checkpoint(o.to, *target.model,
                  {.config = target.config.dump(-1, ' ', false, Json::error_handler_t::replace),
                   .metadata = {{"converted_from", o.from}, {kNames, names.family()}}});
  return report;
}

Report export_weights(const Options& o) {
  const CheckpointReader file(o.from);
  const CheckpointInfo& info = file.info();
  const Json config = Json::parse(info.config, nullptr, /*exceptions=*/false);
  const std::string model =
      config.is_object() && config.contains("model") && config["model"].is_string()
          ? config["model"].get<std::string>()
          : "";
  if (!o.model.empty() || !o.config.empty() || !o.classes.empty())
    throw Error(o.from +
                ": a checkpoint says itself what model it is; --model, --config and "
                "--classes are for other files");
  const WeightNames names = WeightNames::for_model(o.names, model);
  Report report{names.family(), model.empty() ? "model" : model, {}, {}};
  std::vector<SafetensorsItem> items;
  for (const auto& tensor : info.tensors) {
    if (tensor.role == TensorRole::state) {
      report.left_out.push_back(tensor.name);
      continue;
    }
    const Shape shape = names.theirs(tensor.name, tensor.shape);
    items.push_back({names.theirs(tensor.name), tensor.dtype, shape,
                     [&file, &tensor, shape] { return file.read(tensor).alias(shape); }});
    report.lines.push_back({items.back().name, tensor.name, name_of(tensor.dtype), shape});
  }
  write_safetensors(o.to, std::move(items),
                    {{"format", "pt"}, {kConfig, info.config}, {kNames, names.family()}});
  return report;
}

int run(const Options& o) {
  const auto is = [](const std::string& path, const char* end) { return path.ends_with(end); };
  const bool import = is(o.from, ".safetensors") && is(o.to, ".lip");
  if (!import && !(is(o.from, ".lip") && is(o.to, ".safetensors")))
    throw Error(fmt::format(
        "convert: from {} to {}: one must end in .lip, the other in .safetensors", o.from, o.to));
  if (!o.json.empty()) check_writable(o.json);
  const Report report = import ? import_weights(o) : export_weights(o);
  if (o.verbose) {
    Table table({"in .safetensors", "in .lip", "dtype", "shape"});
    for (const auto& line : report.lines)
      table.add_row({line.file, line.lipgrad, line.dtype, line.shape.str()});
    for (const std::string& name : report.left_out) table.add_row({name, "left out", "", ""});
    std::fputs(table.str().c_str(), stdout);
  }
  fmt::print("{}: {}, names of {}{}; {} tensors, {} left out\n", o.to, report.model, report.names,
             o.names == "auto" ? " (recognised)" : "", report.lines.size(), report.left_out.size());
  if (o.json.empty()) return success;
  Json json = {{"from", o.from},           {"to", o.to},
               {"model", report.model},    {"names", report.names},
               {"tensors", Json::array()}, {"left_out", report.left_out}};
  for (const auto& line : report.lines)
    json["tensors"].push_back({{"safetensors", line.file},
                               {"lipgrad", line.lipgrad},
                               {"dtype", line.dtype},
                               {"shape", std::vector(line.shape.begin(), line.shape.end())}});
  write_json(o.json, json);
  return success;
}

}  // namespace

void add_convert(CLI::App& app, int& exit) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "convert", "Turn weights of timm, PyTorch Geometric and others into a checkpoint, and back");
  command->add_option("from", o->from, "A .safetensors or .lip file")
      ->required()
      ->type_name("FILE");
  command->add_option("to", o->to, "The other of the two")->required()->type_name("FILE");
  std::vector<std::string> families = WeightNames::families();
  families.insert(families.begin(), "auto");
  command->add_option("--names", o->names, "Whose names the tensors have in .safetensors")
      ->capture_default_str()
      ->check(CLI::IsMember(families));
  command
      ->add_option("--model", o->model,
                   "The model of images, where names and shapes do not tell it")
      ->check(CLI::IsMember(vision_model_names()));
  command->add_option("--heads", o->heads, "Heads of its layers [of vit: one for 64 features]")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--image-size", o->image_size, "Height and width of its images [by its windows]")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--config", o->config,
                      "TOML file of more settings, by the names of `lipgrad train`");
  command->add_option("--data", o->data,
                      "The data set that `lipgrad eval` takes unless told another");
  command
      ->add_option("--classes", o->classes,
                   "File of class names, one a line, for `lipgrad predict`")
      ->type_name("FILE");
  command->add_option("--mean", o->mean, "What is subtracted from each channel of an image, 0 to 1")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--std", o->deviation, "What it is divided by then")
      ->delimiter(',')
      ->capture_default_str();
  command->add_flag("--verbose", o->verbose, "Also show what went where");
  command->add_option("--json", o->json, "Also write that to this file");
  command->callback([o, &exit] { exit = run(*o); });
}

}  // namespace lipgrad::cli
