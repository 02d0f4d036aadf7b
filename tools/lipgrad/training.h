#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lipgrad/graph/node_data.h>
#include <lipgrad/models/trainer.h>

#include "lipgrad/gnn_settings.h"

namespace CLI {
class App;
}

// One configuration, trained: what `train` does for a run, what `sweep` asks of each of its runs,
// and what `eval` reads back from a checkpoint.
namespace lipgrad::cli {

// Everything that decides what a run comes to. Its options make up a command whose name is the
// model's, such as "gat".
struct Configuration {
  // Error for a name that is no model's.
  explicit Configuration(const std::string& model) : settings(gnn_layer(model)) {}

  GnnSettings settings;
  std::string preset = "paper";
  std::int64_t evaluate_every = 1;
  bool tf32 = false;
};

// The models there are: names of commands of `train`.
std::vector<std::string> model_names();

void add_configuration(CLI::App& command, Configuration& configuration);

// Gives options without a value the one of `settings`, then the preset's.
void complete(CLI::App& command, Configuration& configuration, const Settings& settings,
              const std::string& where);

// The configuration of a run by the names of the options, and "model". How long a run is decides
// only with a cosine; a run can be resumed to become longer.
nlohmann::json to_json(const CLI::App& command, const Configuration& configuration,
                       std::uint64_t seed);

// What a checkpoint of `train` says it was trained with, put into the command's options. Error
// "<where>: ..." for a configuration that is none of a model here.
void fill_from_checkpoint(CLI::App& command, const nlohmann::json& config,
                          const std::string& where);

// The settings of a graph network that a checkpoint was trained with; Error as above.
GnnSettings gnn_settings_of(const nlohmann::json& config, const std::string& where);

// What --select names: score, loss, last.
Selection selection(const std::string& name);

// What has no part in the results of a run.
struct RunOptions {
  std::string out;  // directory; empty: nothing is written
  bool resume = false, progress = true, cuda_graph = false;
  std::int64_t checkpoint_every = 20, log_gradients = 0;
};

struct Run {
  std::uint64_t seed;
  std::string score;  // what the task is judged by, see Task
  TrainResult result;
};

// Trains the completed configuration with this seed on its data set. Ends early, with a checkpoint,
// when stop_asked().
Run train_run(const CLI::App& command, const Configuration& configuration, const NodeData& data,
              std::uint64_t seed, const RunOptions& options);

// From now on SIGINT and SIGTERM are asked for by stop_asked(); the second one ends the program.
void catch_stop_signals();
bool stop_asked();

// The value of that name, or NaN.
double find(const std::vector<Metric>& metrics, const std::string& name);

// A run for --json: "seed", "epochs", "best_epoch", and of the chosen epoch "valid_<score>",
// "valid_loss", "test_<score>"; "test_<score>_last" and "train_<score>_last"; "seconds_per_epoch".
nlohmann::json to_json(const Run& run);

}  // namespace lipgrad::cli
