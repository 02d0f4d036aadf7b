#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lipgrad/core/optimizer.h>
#include <lipgrad/graph/node_data.h>
#include <lipgrad/models/gat.h>

#include "lipgrad/settings.h"

namespace lipgrad::cli {

// What describes a trained GAT and how it was trained.
struct GatSettings {
  std::string data = "cora", features = "auto";
  bool row_normalize = false;
  double missing = 0;
  std::optional<std::uint64_t> missing_seed;
  GatOptions model;
  GatGroupOptions groups;
  double lr = 5e-3, weight_decay = 5e-4;
  std::string schedule = "plateau", select = "last";
  std::optional<std::int64_t> epochs;
  std::int64_t patience = 0;
  std::uint64_t seed = 0;

  GatSettings();
  std::int64_t num_epochs() const;
};

// Groups of options, as --help and to_json() have them.
constexpr auto data_group = "Data", model_group = "Model", training_group = "Training";

// Adds their options to a command; the defaults are the LipschitzNorm paper's protocol.
void add_gat_settings(CLI::App& command, GatSettings& settings);

// The named presets, and what each sets for a number of layers and a data set; `layers` and `data`
// are read from what the command has so far. Error for an unknown name.
std::vector<std::string> preset_names();
Settings preset(const std::string& name, std::optional<std::int64_t> layers,
                const std::string& data);
// The presets for --help: name and settings, each at its own depth on Cora.
std::string describe_presets();

// The data set as the settings ask for it, features hidden where they say so.
NodeData load(const GatSettings& settings);
// The model for this data, not initialised.
std::unique_ptr<Gat> make_gat(const GatSettings& settings, const NodeData& data);

}  // namespace lipgrad::cli
