#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/optimizer.h>
#include <lipgrad/graph/node_data.h>
#include <lipgrad/models/gnn.h>

#include "lipgrad/settings.h"

namespace CLI {
class App;
}

namespace lipgrad::cli {

// The models of `lipgrad train`, by name: the kinds of layers.
using Names = std::vector<std::pair<std::string, GnnLayer>>;
const Names& gnn_names();
// The kind of that name; Error for none.
GnnLayer gnn_layer(const std::string& name);

enum class AttentionNormChoice : std::uint8_t { none, lipschitz, lipschitz_reference };

// What describes a trained graph network and how it was trained.
struct GnnSettings {
  std::string data = "cora", features = "auto";
  std::string splits = "own";
  std::int64_t split = 0;
  bool row_normalize = false;
  double missing = 0;
  std::optional<std::uint64_t> missing_seed;
  GnnOptions model;  // but its attention_norm
  AttentionNormChoice attention_norm = AttentionNormChoice::none;
  LipschitzNorm lipschitz;
  GnnGroupOptions groups;
  double lr = 5e-3, weight_decay = 5e-4;
  std::string schedule = "plateau", select = "last";
  std::optional<std::int64_t> epochs;
  std::int64_t patience = 0;
  // Pieces of the graph, a step each: parts, or sampled neighbourhoods.
  std::int64_t parts = 1;
  std::string partition = "random";
  std::string fanouts;
  std::int64_t batch_size = 512;
  std::uint64_t seed = 0;

  // The LipschitzNorm paper's protocol for a kind of layer.
  explicit GnnSettings(GnnLayer layer);
  std::int64_t num_epochs() const;
};

// Groups of options, as --help and to_json() have them.
constexpr auto data_group = "Data", model_group = "Model", training_group = "Training";

// Adds the options of settings.model.layer to a command.
void add_gnn_settings(CLI::App& command, GnnSettings& settings);

// The named presets, and what each sets for a kind of layer, a number of layers and a data set;
// `layers` and `data` are what the command has so far. Error for an unknown name.
std::vector<std::string> preset_names();
Settings preset(const std::string& name, GnnLayer layer, std::optional<std::int64_t> layers,
                const std::string& data);
// The presets for --help: name and settings, each at its own depth on Cora.
std::string describe_presets(GnnLayer layer);

// "10,5" as numbers; Error for other texts.
std::vector<std::int64_t> parse_fanouts(const std::string& text);

// The data set as the settings ask for it, features hidden where they say so.
NodeData load(const GnnSettings& settings);
// The model for this data, or for so many features of nodes, classes and features of edges; not
// initialised.
std::unique_ptr<Gnn> make_gnn(const GnnSettings& settings, const NodeData& data);
std::unique_ptr<Gnn> make_gnn(const GnnSettings& settings, std::int64_t in, std::int64_t out,
                              std::int64_t edge_features);

}  // namespace lipgrad::cli
