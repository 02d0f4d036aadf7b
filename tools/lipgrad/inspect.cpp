#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/checkpoint.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/log.h>
#include <lipgrad/core/printable.h>

#include "lipgrad/commands.h"
#include "lipgrad/results.h"

namespace lipgrad::cli {
namespace {

using Json = nlohmann::json;
using TensorInfo = CheckpointInfo::TensorInfo;

constexpr std::size_t longest_text = 400;  // of what is printed; --json has all of it

struct Options {
  std::string checkpoint, json;
};

// Over the finite elements; NaN where there is none.
struct Statistics {
  std::int64_t not_finite = 0;
  double norm = 0, min = NAN, max = NAN, mean = NAN;
};

template <class T>
Statistics statistics(const T* x, std::int64_t n) {
  Statistics s;
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(x[i]);
    if (!std::isfinite(value)) {
      ++s.not_finite;
      continue;
    }
    s.min = std::isnan(s.min) ? value : std::min(s.min, value);
    s.max = std::isnan(s.max) ? value : std::max(s.max, value);
    largest = std::max(largest, std::fabs(value));
  }
  if (s.not_finite == n) return s;
  if (largest == 0) {
    s.mean = 0;
    return s;
  }
  // Divided by the largest, neither squares nor sums can overflow or vanish.
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]) / largest;
    if (!std::isfinite(value)) continue;
    sum += value;
    squares += value * value;
  }
  s.mean = sum / static_cast<double>(n - s.not_finite) * largest;
  s.norm = std::sqrt(squares) * largest;
  return s;
}

Statistics statistics(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case f32:
      return statistics(tensor.data<float>(), tensor.numel());
    case f64:
      return statistics(tensor.data<double>(), tensor.numel());
    case i32:
      return statistics(tensor.data<std::int32_t>(), tensor.numel());
    case i64:
      return statistics(tensor.data<std::int64_t>(), tensor.numel());
    case u8:
      return statistics(tensor.data<std::uint8_t>(), tensor.numel());
  }
  return {};
}

// The JSON in a text of unknown origin; discarded() if there is none, or it is nested so deeply
// that printing it could exhaust the stack.
Json parse(const std::string& text) {
  constexpr int deepest = 100;
  int depth = 0;
  for (const char c : text) {
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (depth > deepest) return Json(Json::value_t::discarded);
  }
  return Json::parse(text, nullptr, false);
}

// Metrics as the trainer stores them: [["valid_loss", "0x1.8p+0"], ...]; else null.
Json metrics(const std::string& text) {
  const Json json = parse(text);
  Json values = Json::object();
  if (!json.is_array() || json.empty()) return nullptr;
  for (const Json& entry : json) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_string())
      return nullptr;
    const auto& number = entry[1].get_ref<const std::string&>();
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0') return nullptr;
    values[entry[0].get<std::string>()] = value;
  }
  return values;
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

std::string text_of(const StateValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return printable(*text);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  return number(std::get<double>(value));
}

std::string text_of(const CheckpointInfo::StateInfo& state) {
  std::string text = printable(state.kind);
  const char* separator = ": ";
  for (const auto& [key, value] : state.values) {
    text += separator + printable(key) + " " + text_of(value);
    separator = ", ";
  }
  return text;
}

std::string metadata_text(const std::string& value) {
  const Json values = metrics(value);
  if (values.is_null()) return printable(value, longest_text);
  std::string text;
  for (const auto& [name, metric] : values.items())
    text += (text.empty() ? "" : ", ") + printable(name) + " " + number(metric.get<double>());
  return text;
}

void print_line(const std::string& name, const std::string& value) {
  fmt::print("{:<14}  {}\n", printable(name), value);
}

// Everything but the tensors.
void print_head(const std::string& path, const CheckpointReader& file) {
  const CheckpointInfo& info = file.info();
  fmt::print("{}: a checkpoint of format {}, written by lipgrad {}, {}\n\n", path, info.format,
             printable(info.library_version), bytes_text(file.file_bytes()));
  print_line("epoch", std::to_string(info.epoch));
  print_line("step", std::to_string(info.step));
  for (const auto& [name, state] : info.states) print_line(name, text_of(state));
  for (const char* usual : {"optimizer", "schedule"})
    if (!info.states.contains(usual)) print_line(usual, "none");
  for (const auto& [name, generator] : info.generators)
    print_line(name, fmt::format("seed {}, next draw {}", generator.seed, generator.draw));
  if (info.generators.empty()) print_line("generator", "none");
  for (const auto& [key, value] : info.metadata) print_line(key, metadata_text(value));
  if (info.config.empty()) return print_line("configuration", "none");
  const Json config = parse(info.config);
  if (!config.is_structured())
    return print_line("configuration", printable(info.config, longest_text));
  fmt::print("\nconfiguration\n{}\n", config.dump(2, ' ', true, Json::error_handler_t::replace));
}

Json head_json(const std::string& path, const CheckpointReader& file) {
  const CheckpointInfo& info = file.info();
  Json json = {{"file", path},          {"bytes", file.file_bytes()},
               {"format", info.format}, {"library_version", info.library_version},
               {"epoch", info.epoch},   {"step", info.step}};
  const Json config = parse(info.config);
  json["config"] = config.is_discarded() ? Json(info.config) : config;
  json["states"] = json["generators"] = json["metadata"] = Json::object();
  for (const auto& [name, state] : info.states) {
    Json values = Json::object();
    for (const auto& [key, value] : state.values)
      values[key] = std::visit([](const auto& v) { return Json(v); }, value);
    json["states"][name] = {{"kind", state.kind}, {"values", values}};
  }
  for (const auto& [name, generator] : info.generators)
    json["generators"][name] = {{"seed", generator.seed}, {"next_draw", generator.draw}};
  for (const auto& [key, value] : info.metadata) {
    const Json values = metrics(value);
    json["metadata"][key] = values.is_null() ? Json(value) : values;
  }
  return json;
}

struct Total {
  const char *name, *key;
  std::int64_t tensors = 0, elements = 0, bytes = 0, not_finite = 0;
};

int run(const Options& options) {
  if (!options.json.empty()) check_writable(options.json);
  const CheckpointReader file(options.checkpoint);
  Table table({"tensor", "role", "dtype", "shape", "elements", "bytes", "norm", "min", "max",
               "mean", "finite"});
  std::array totals = {Total{"parameters", "parameters"}, Total{"buffers", "buffers"},
                       Total{"optimiser state", "optimizer_state"}};
  Json json = head_json(options.checkpoint, file);
  json["tensors"] = Json::array();
  for (const TensorInfo& tensor : file.info().tensors) {
    const Statistics s = statistics(file.read(tensor));
    const std::int64_t n = tensor.shape.numel();
    Total& total = totals[static_cast<std::size_t>(tensor.role) - 1];
    ++total.tensors;
    total.elements += n;
    total.bytes += tensor.bytes();
    total.not_finite += s.not_finite > 0;
    const bool any = s.not_finite < n;
    const auto cell = [&](double value) { return any ? fmt::format("{:.4g}", value) : "-"; };
    table.add_row({printable(tensor.name), name_of(tensor.role), name_of(tensor.dtype),
                   tensor.shape.str(), std::to_string(n), std::to_string(tensor.bytes()),
                   cell(s.norm), cell(s.min), cell(s.max), cell(s.mean),
                   s.not_finite == 0 ? "yes" : fmt::format("no: {} are not", s.not_finite)});
    json["tensors"].push_back({{"name", tensor.name},
                               {"role", name_of(tensor.role)},
                               {"dtype", name_of(tensor.dtype)},
                               {"shape", std::vector(tensor.shape.begin(), tensor.shape.end())},
                               {"elements", n},
                               {"bytes", tensor.bytes()},
                               {"norm", any ? Json(s.norm) : Json()},
                               {"min", s.min},
                               {"max", s.max},
                               {"mean", s.mean},
                               {"not_finite", s.not_finite}});
  }
  // Printed once all of the file has been read: a damaged one gives an error and nothing else.
  print_head(options.checkpoint, file);
  if (!file.info().tensors.empty()) fmt::print("\n{}", table.str());
  Table sums({"", "tensors", "elements", "bytes", ""});
  std::int64_t bad = 0;
  for (const Total& total : totals) {
    sums.add_row({total.name, std::to_string(total.tensors), std::to_string(total.elements),
                  std::to_string(total.bytes), total.bytes < 1024 ? "" : bytes_text(total.bytes)});
    json["totals"][total.key] = {
        {"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
    bad += total.not_finite;
  }
  fmt::print("\n{}", sums.str());
  if (bad > 0)
    fmt::print("\n{} tensor{} values that are not finite\n", bad, bad == 1 ? " has" : "s have");
  if (!options.json.empty()) write_json(options.json, json);
  return success;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a checkpoint holds: settings, results, optimiser, every tensor");
  command->add_option("checkpoint", options->checkpoint, "The file, such as last.lip")
      ->required()
      ->type_name("FILE");
  command->add_option("--json", options->json, "Also write the results to this file")
      ->type_name("FILE");
  command->callback([options, &exit] { exit = run(*options); });
}

}  // namespace lipgrad::cli
