#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lipgrad/sweep_grid.h"
#include "lipgrad/training.h"
#include "lipgrad/vision_training.h"

// What a sweep must know of the models that `lipgrad train` trains: those of graphs, whose names
// are commands, and those of images, which `train vision --model NAME` trains.
namespace lipgrad::cli {

// All of them.
std::vector<std::string> sweep_models();
bool is_image_model(const std::string& name);

// Calls f once for each command of `train`, with its options.
void for_each_train_command(const std::function<void(const CLI::App& command)>& f);

// All settings of a run that is given some: presets and defaults fill the rest. Settings that other
// models have and this one does not are left out, so that one grid serves several models, unless
// they are among `own`. Error "<where>: ..." for what is no setting, or a wrong value.
nlohmann::json complete_config(Settings settings, const Settings& own, const std::string& where);

// The words after `lipgrad` that train such a run: "train", "gat", "--layers=3", ...
std::vector<std::string> train_words(const nlohmann::json& config);

// Makes sure that runs can start, before any does.
class RunCheck {
 public:
  // Loads the run's data set, unless it is known, and makes its model. Returns about how many
  // seconds the run takes on one core of the machine that this was measured on.
  double operator()(const PlannedRun& run);

 private:
  std::map<std::string, NodeData> graphs_;
  std::map<std::string, ImageData> images_;
};

}  // namespace lipgrad::cli
