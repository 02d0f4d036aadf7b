#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <lipgrad/core/device.h>

#include "lipgrad/training.h"
#include "lipgrad/vision_settings.h"

namespace CLI {
class App;
}

// One configuration of a model of images, trained and read back: see training.h.
namespace lipgrad::cli {

struct VisionConfiguration {
  VisionSettings settings;
  std::string preset = "micro";
  std::int64_t evaluate_every = 1;
  bool tf32 = false;
};

void add_configuration(CLI::App& command, VisionConfiguration& configuration);

// Gives options without a value the one of `settings`, then the preset's, then the model's.
void complete(CLI::App& command, VisionConfiguration& configuration, const Settings& settings,
              const std::string& where);

// The configuration of a run by the names of the options, and "model".
nlohmann::json to_json(const CLI::App& command, const VisionConfiguration& configuration,
                       std::uint64_t seed);
// The same with "images": what a model must be told of the images it was trained on. How long a run
// is decides only with a cosine.
nlohmann::json to_json(const CLI::App& command, const VisionConfiguration& configuration,
                       const ImageSetInfo& images, std::uint64_t seed);

// The data set as the settings ask for it.
ImageData load(const VisionSettings& settings);

// Trains the completed configuration with this seed. Ends early, with a checkpoint, when
// stop_asked().
Run train_run(const CLI::App& command, const VisionConfiguration& configuration,
              const ImageData& data, std::uint64_t seed, Device device, const RunOptions& options);

// Tells people which images of a part were left out because they cannot be read.
void tell_corrupt(const ImageLoader& loader, const char* part);

// What a checkpoint of `train vision` says of its model.
struct TrainedVision {
  VisionSettings settings;
  ImageSetInfo images;
  std::unique_ptr<ImageClassifier> model;  // with the checkpoint's weights, on the device
};
// Whether this is the configuration of such a checkpoint.
bool is_vision(const nlohmann::json& config);
// Error "<path>: ..." for what is none.
TrainedVision make_vision(const std::string& path, const nlohmann::json& config);  // no weights yet
TrainedVision load_vision(const std::string& path, const nlohmann::json& config, Device device);

// How images become what the model takes, in evaluation.
EvaluationOptions evaluation_options(const VisionSettings& settings);

}  // namespace lipgrad::cli
