#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/models/swin.h>
#include <lipgrad/models/vision_transformer.h>
#include <lipgrad/vision/augment.h>
#include <lipgrad/vision/image_data.h>
#include <lipgrad/vision/loader.h>

#include "lipgrad/settings.h"

namespace CLI {
class App;
}

namespace lipgrad::cli {

// What describes a trained model of images and how it was trained.
struct VisionSettings {
  std::string model = "lipsformer_swin";
  // Data.
  std::string data = "fashion-mnist";
  double validation = 0;
  std::int64_t train_images = 0, test_images = 0;  // so many alone; 0: all
  std::int64_t image_size = 0;                     // 0: the model's
  std::int64_t batch_size = 128;
  bool skip_corrupt = false;
  AugmentOptions augment;  // but its sizes
  MixOptions mix;
  // The model: its sizes but channels and classes, which the data have. A vision transformer has
  // the first of depths and heads, and neither windows nor convolutions.
  SwinOptions sizes;
  std::string depths, heads, splits;
  // Training.
  double lr = 1e-3, min_lr = 5e-6, weight_decay = 0.05, vector_weight_decay = 5e-4, beta2 = 0.98;
  double clip_norm = 5, average_decay = 0, warmup_epochs = 0;
  std::int64_t accumulate = 1, epochs = 10;
  std::string schedule = "cosine", select = "last";
  std::uint64_t seed = 0;
};

// The names of models, and those that stand for a family: vit, swin, cswin,
// lipsformer_swin, lipsformer_cswin.
std::vector<std::string> vision_model_names();
// The model that a name and a preset mean: "lipsformer_swin" and "micro" lipsformer_swin_micro,
// and "paper" lipsformer_swin_t.
std::string resolved_model(const std::string& name, const std::string& preset);

// Adds the options of groups of options; see gnn_settings.h for the names of groups.
void add_vision_data(CLI::App& command, VisionSettings& settings);
void add_vision_model(CLI::App& command, VisionSettings& settings);
void add_vision_training(CLI::App& command, VisionSettings& settings);

// What a model's name means, and a preset for it on a data set, by options. Error for names that
// there are not.
Settings vision_model_settings(const std::string& model);
std::vector<std::string> vision_preset_names();
Settings vision_preset(const std::string& name, const std::string& model, const std::string& data);
std::string describe_vision_presets();

// The model, not initialised, for images of so many channels and classes.
std::unique_ptr<ImageClassifier> make_vision_model(const VisionSettings& settings,
                                                   std::int64_t channels, std::int64_t classes);

}  // namespace lipgrad::cli
