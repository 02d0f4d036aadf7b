#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace CLI {
class App;
}

// Settings that come from more than one place: the command line, then a file, then a preset, then
// the options' defaults. They have the same names everywhere, those of the long options.
namespace lipgrad::cli {

// {"attention-norm", "lipschitz"}
using Settings = std::vector<std::pair<std::string, std::string>>;

// Gives the command's options these values where they have none yet. Error "<where>: ..." for a
// name that is no option of the command, or a value that the option does not take.
void fill(CLI::App& command, const Settings& settings, const std::string& where);

// The settings in a TOML file: `layers = 30`, `norm = "pairnorm"`. Error for a file that cannot be
// read or is larger than a megabyte, for sections, and for lines that are no settings.
Settings read_settings(const std::string& path);
// The text of such a file; errors for what is none.
std::string read_settings_text(const std::string& path);

// The options of a group as JSON, by name: the value given, else the default, null if there is
// none. Numbers and booleans become such.
nlohmann::json to_json(const CLI::App& command, const std::string& group);
// Back: nulls are left out. Error "<where>: ..." unless it is an object of plain values.
Settings from_json(const nlohmann::json& json, const std::string& where);

// The option --device, for commands that compute: "cpu", "cuda" or "cuda:1", to be given to
// parse_device().
void add_device(CLI::App& command, std::string& device);

}  // namespace lipgrad::cli
