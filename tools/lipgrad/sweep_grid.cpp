#include "lipgrad/sweep_grid.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <lipgrad/core/error.h>

#include "lipgrad/spelling.h"
#include "lipgrad/sweep_models.h"

namespace lipgrad::cli {
namespace {

bool sets(const Settings& settings, const std::string& name) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const auto& setting) { return setting.first == name; });
}

void set(Settings& settings, const std::string& name, const std::string& value) {
  for (auto& [key, old] : settings)
    if (key == name) {
      old = value;
      return;
    }
  settings.emplace_back(name, value);
}

}  // namespace

const std::vector<std::string>& repeat_axes() {
  static const std::vector<std::string> axes{seed_axis, "split"};
  return axes;
}

const Axis* Grid::find(const std::string& name) const {
  for (const Axis& axis : axes)
    if (axis.name == name) return &axis;
  return nullptr;
}

std::string run_id(const nlohmann::json& config) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const unsigned char c :
       config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
    hash = (hash ^ c) * 1099511628211ull;
  return fmt::format("{:016x}", hash);
}

Axis make_axis(const std::string& name, const std::vector<std::string>& values) {
  if (values.empty()) throw Error(fmt::format("sweep: {} has no values", name));
  Axis axis{name, {}};
  std::set<std::string> seen;
  for (const std::string& value : values) {
    if (!seen.insert(value).second)
      throw Error(fmt::format("sweep: {} has the value {} twice", name, value));
    axis.choices.push_back({value, {{name, value}}});
  }
  return axis;
}

Axis make_seeds(const std::vector<std::string>& values) {
  std::vector<std::string> seeds = values;
  for (const std::string& value : values) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() ||
        (values.size() == 1 && (number == 0 || number > 100000)))
      throw Error(fmt::format(
          "sweep: seeds: expected how many (1 to 100000) or a list such as 0,1,2, got {}", value));
    if (values.size() > 1) continue;
    seeds.clear();
    for (std::uint64_t seed = 0; seed < number; ++seed) seeds.push_back(std::to_string(seed));
  }
  return make_axis(seed_axis, seeds);
}

void set_values(Grid& grid, const std::string& name, const std::vector<std::string>& values,
                const std::string& where) {
  Axis axis = make_axis(name, values);
  for (const Axis& other : grid.axes)
    if (other.name != name)
      for (const Choice& choice : other.choices)
        if (sets(choice.settings, name))
          throw Error(
              fmt::format("{}: {} is set by the {} '{}'", where, name, other.name, choice.label));
  for (Axis& old : grid.axes)
    if (old.name == name) {
      old = std::move(axis);
      return;
    }
  if (values.size() == 1)
    set(grid.common, name, values[0]);
  else
    grid.axes.push_back(std::move(axis));
}

void keep_methods(Grid& grid, const std::vector<std::string>& labels) {
  for (Axis& axis : grid.axes) {
    if (axis.name != method_axis) continue;
    std::vector<std::string> all;
    for (const Choice& choice : axis.choices) all.push_back(choice.label);
    std::vector<Choice> kept;
    for (const std::string& label : labels) {
      const auto found = std::find_if(axis.choices.begin(), axis.choices.end(),
                                      [&](const Choice& c) { return c.label == label; });
      if (found == axis.choices.end())
        throw Error(fmt::format("sweep: there is no method '{}'; there are: {}", label,
                                fmt::join(all, ", ")));
      if (std::none_of(kept.begin(), kept.end(), [&](const Choice& c) { return c.label == label; }))
        kept.push_back(*found);
    }
    axis.choices = std::move(kept);
    return;
  }
  throw Error("sweep: this grid has no methods to choose from");
}

void read_grid(Grid& grid, const std::string& path) {
  const std::string text = read_settings_text(path);
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t at = line.find_first_not_of(" \t\r");
    if (at == std::string::npos || line[at] == '#') continue;
    if (line.compare(at, 8, "[method.") != 0 && line.find('=') == std::string::npos)
      throw Error(
          fmt::format("{}:{}: expected `name = value`, `name = [value, value]` or "
                      "`[method.NAME]`, got: {}",
                      path, number, line));
  }
  Axis methods{method_axis, {}};
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  std::istringstream input(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(input);
  } catch (const CLI::Error& error) {
    throw Error(path + ": " + error.what());
  }
  const auto method = [&](const std::string& label) -> Choice& {
    for (Choice& choice : methods.choices)
      if (choice.label == label) return choice;
    return methods.choices.emplace_back(Choice{label, {}});
  };
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") {  // a section's begin and end
      if (item.parents.size() == 2 && item.parents[0] == method_axis) method(item.parents[1]);
      continue;
    }
    if (item.parents.empty()) {
      values.emplace_back(item.name, item.inputs);
      continue;
    }
    if (item.parents.size() != 2 || item.parents[0] != method_axis || item.inputs.size() != 1)
      throw Error(fmt::format("{}: '{}' must have one value, in a section [method.NAME]", path,
                              item.fullname()));
    method(item.parents[1]).settings.emplace_back(item.name, item.inputs.front());
  }
  if (!methods.choices.empty()) grid.axes.insert(grid.axes.begin(), std::move(methods));
  for (const auto& [name, list] : values) {
    if (name == "choose") {
      grid.choose = list;
    } else if (name == "seeds" || name == seed_axis) {
      std::erase_if(grid.axes, [](const Axis& axis) { return axis.name == seed_axis; });
      grid.axes.push_back(make_seeds(list));
    } else {
      set_values(grid, name, list, path);
    }
  }
}

std::vector<PlannedRun> expand(const Grid& grid) {
  double count = 1;
  for (const Axis& axis : grid.axes) count *= static_cast<double>(axis.choices.size());
  if (count > 100000)
    throw Error(fmt::format("sweep: a grid of {:.3g} runs; at most 100000", count));
  for (const std::string& name : grid.choose)
    if (!grid.find(name) ||
        std::find(repeat_axes().begin(), repeat_axes().end(), name) != repeat_axes().end())
      throw Error(fmt::format("sweep: cannot choose '{}', which is no axis of this grid", name));
  std::vector<PlannedRun> runs;
  std::vector<std::size_t> at(grid.axes.size(), 0);
  const Axis* seeds = grid.find(seed_axis);
  for (bool more = true; more;) {
    Settings settings = grid.common, own;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const Choice& choice = grid.axes[i].choices[at[i]];
      for (const auto& [name, value] : choice.settings) set(settings, name, value);
      if (grid.axes[i].name == method_axis) own = choice.settings;
    }
    if (!sets(settings, "missing-seed"))
      set(settings, "missing-seed", seeds ? seeds->choices.front().label : "0");
    PlannedRun run{at, {}, {}};
    const std::string name = describe(grid, at);
    run.config =
        complete_config(std::move(settings), own, name.empty() ? "sweep" : "sweep: " + name);
    if (grid.log_gradients > 0) run.config["log-gradients"] = grid.log_gradients;
    run.id = run_id(run.config);
    runs.push_back(std::move(run));
    more = false;
    for (std::size_t i = at.size(); i-- > 0 && !more;) {
      more = ++at[i] < grid.axes[i].choices.size();
      if (!more) at[i] = 0;
    }
  }
  return runs;
}

std::string describe(const Grid& grid, const std::vector<std::size_t>& at,
                     const std::vector<std::string>& without) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Axis& axis = grid.axes[i];
    if (axis.choices.size() < 2 ||
        std::find(without.begin(), without.end(), axis.name) != without.end())
      continue;
    const std::string& label = axis.choices[at[i]].label;
    parts.push_back(axis.name == method_axis ? label : axis.name + " " + label);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace lipgrad::cli
