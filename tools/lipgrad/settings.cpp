#include "lipgrad/settings.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>

namespace lipgrad::cli {
namespace {

const std::string& name_of(const CLI::Option& option) {
  static const std::string none;
  return option.get_lnames().empty() ? none : option.get_lnames().front();
}

}  // namespace

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "Where to compute: cpu, cuda or cuda:1")
      ->capture_default_str();
}

void fill(CLI::App& command, const Settings& settings, const std::string& where) {
  for (const auto& [name, value] : settings) {
    CLI::Option* option = command.get_option_no_throw("--" + name);
    if (!option || name == "help")
      throw Error(fmt::format("{}: there is no setting '{}'; see `lipgrad train {} --help`", where,
                              name, command.get_name()));
    if (option->count() > 0) continue;
    try {
      option->add_result(value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw Error(fmt::format("{}: {} = {}: {}", where, name, value, error.what()));
    }
  }
}

std::string read_settings_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path + ": cannot be opened");
  std::string text(1 << 20, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw Error(path + ": cannot be read; expected a file of settings");
  if (file.gcount() == static_cast<std::streamsize>(text.size()))
    throw Error(path + ": larger than a megabyte; expected a file of settings");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.find('\0') != std::string::npos)
    throw Error(path + ": not a text file; expected lines such as `layers = 30`");
  return text;
}

Settings read_settings(const std::string& path) {
  const std::string text = read_settings_text(path);
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t at = line.find_first_not_of(" \t\r");
    if (at == std::string::npos || line[at] == '#') continue;
    if (line[at] == '[' || line.find('=') == std::string::npos)
      throw Error(fmt::format("{}:{}: expected `name = value`, got: {}", path, number, line));
  }
  Settings settings;
  try {
    std::istringstream input(text);
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(input)) {
      if (!item.parents.empty() || item.inputs.size() != 1)
        throw Error(fmt::format("{}: '{}' must have one value", path, item.fullname()));
      settings.emplace_back(item.name, item.inputs.front());
    }
  } catch (const CLI::Error& error) {
    throw Error(path + ": " + error.what());
  }
  return settings;
}

nlohmann::json to_json(const CLI::App& command, const std::string& group) {
  nlohmann::json json = nlohmann::json::object();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() != group || name_of(*option).empty()) continue;
    const std::string text =
        option->count() > 0 ? option->results().front() : option->get_default_str();
    nlohmann::json& value = json[name_of(*option)];
    if (text.empty()) continue;
    value = nlohmann::json::parse(text, nullptr, false);
    if (value.is_discarded() || value.is_structured() || value.is_null()) value = text;
  }
  return json;
}

Settings from_json(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) throw Error(where + ": its configuration is not that of a model");
  Settings settings;
  for (const auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    if (value.is_structured())
      throw Error(fmt::format("{}: the setting '{}' is not a plain value", where, name));
    settings.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return settings;
}

}  // namespace lipgrad::cli
