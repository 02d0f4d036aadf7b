#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lipgrad/settings.h"

// A grid of runs: what varies, and the runs that follow from it.
namespace lipgrad::cli {

// One value of an axis: settings that go together, and what they are called.
struct Choice {
  std::string label;
  Settings settings;
};

// What is varied. Any setting of `lipgrad train` is an axis by its name; "method" is one whose
// choices are several settings each.
struct Axis {
  std::string name;
  std::vector<Choice> choices;
};
constexpr auto method_axis = "method", seed_axis = "seed";
// Axes over which results are averaged: seeds, and splits of the data.
const std::vector<std::string>& repeat_axes();

struct Grid {
  Settings common;                  // of all runs, unless a choice says otherwise
  std::vector<Axis> axes;           // the last one varies fastest
  std::vector<std::string> choose;  // axes whose best choice is found on validation
  std::int64_t log_gradients = 0;   // epochs between those that log gradients; 0: never

  const Axis* find(const std::string& name) const;
};

// An axis of a setting: values {"2", "5"} of "layers". Error unless there are any, all different.
Axis make_axis(const std::string& name, const std::vector<std::string>& values);
// The axis of seeds. Error unless it is a number N above 0, for seeds 0 to N - 1, or a list
// "0,1,2".
Axis make_seeds(const std::vector<std::string>& values);

// Gives a setting the values, as an axis of the grid or, if it is one value and no axis yet, for
// all runs. Error "<where>: ..." where methods of the grid set it themselves.
void set_values(Grid& grid, const std::string& name, const std::vector<std::string>& values,
                const std::string& where);
// Leaves only the methods with these labels. Error when there is no such method.
void keep_methods(Grid& grid, const std::vector<std::string>& labels);

// Adds what a TOML file says: `layers = [2, 5]` is an axis, `lr = 0.01` a setting of all runs,
// `seeds = 3` or `[0, 1, 2]`, `choose = ["layers"]`; a section [method.NAME] holds the settings of
// a method. Error "<path>: ..." for anything else.
void read_grid(Grid& grid, const std::string& path);

// A run of the grid.
struct PlannedRun {
  std::vector<std::size_t> at;  // which choice of each axis
  nlohmann::json config;        // all of its settings, "model" and "log-gradients" among them
  std::string id;               // run_id(config)
};

// 16 hexadecimal digits made of the settings.
std::string run_id(const nlohmann::json& config);

// All runs, in order. Error that names the run for settings that are none, or have wrong values;
// without "missing-seed" the nodes without features are those of the first seed, for all runs.
std::vector<PlannedRun> expand(const Grid& grid);

// "GAT-Lip, data cora, layers 30": the choices of axes with several, but the axes left out.
std::string describe(const Grid& grid, const std::vector<std::size_t>& at,
                     const std::vector<std::string>& without = {});

}  // namespace lipgrad::cli
