#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include <lipgrad/core/device.h>

#include "lipgrad/training.h"

namespace CLI {
class App;
}

// What all models of `lipgrad train` share: how many runs, where their files go, what is printed.
namespace lipgrad::cli {

struct RunsOptions {
  RunOptions run;
  std::string config, out, json, device = "cpu";
  std::int64_t runs = 1;
  bool quiet = false;
};

// --config, to stand before the options of the model, and the others, after them.
void add_config(CLI::App& command, RunsOptions& options);
void add_runs(CLI::App& command, RunsOptions& options);

// Refuses what cannot work before anything is computed.
void check_runs(const RunsOptions& options);

// Calls train(seed, options) for each run, prints the results as a table, writes them to --json
// beside the configuration, and gives the exit code.
int run_all(RunsOptions& options, std::uint64_t first_seed, const nlohmann::json& config,
            Device device, const std::function<Run(std::uint64_t, const RunOptions&)>& train);

}  // namespace lipgrad::cli
