#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lipgrad/core/error.h>

#include "lipgrad/vision_settings.h"

namespace lipgrad::cli {

std::vector<std::string> vision_model_names() {
  return {"lipsformer_swin",
          "lipsformer_cswin",
          "swin",
          "cswin",
          "vit",
          "lipsformer_swin_micro",
          "lipsformer_swin_t",
          "lipsformer_swin_t5",
          "lipsformer_swin_s",
          "lipsformer_swin_b",
          "lipsformer_swin_l",
          "lipsformer_cswin_micro",
          "lipsformer_cswin_t",
          "swin_micro",
          "swin_t",
          "swin_s",
          "swin_b",
          "cswin_micro",
          "cswin_t",
          "cswin_s",
          "cswin_b",
          "vit_micro",
          "vit_ti",
          "vit_s",
          "vit_b"};
}

std::string resolved_model(const std::string& name, const std::string& preset) {
  if (name != "vit" && !name.ends_with("swin")) return name;
  if (preset == "micro") return name + "_micro";
  return name == "vit" ? "vit_ti" : name + "_t";
}

std::vector<std::string> vision_preset_names() { return {"micro", "paper"}; }

Settings vision_preset(const std::string& name, const std::string& model, const std::string& data) {
  const bool lipsformer = model.starts_with("lipsformer");
  if (name == "micro") {
    Settings settings{{"epochs", "10"},          {"batch-size", "128"}, {"lr", "0.002"},
                      {"crop", "padded"},        {"padding", "2"},      {"flip", "0.5"},
                      {"label-smoothing", "0.1"}};
    if (data.starts_with("cifar"))
      settings.insert(settings.end(), {{"image-size", "32"}, {"window", "8"}, {"padding", "4"}});
    return settings;
  }
  if (name != "paper")
    throw Error(fmt::format("unknown preset '{}'; there are: {}", name,
                            fmt::join(vision_preset_names(), ", ")));
  Settings settings{
      {"epochs", "300"},          {"lr", "0.001"},   {"batch-size", "128"}, {"accumulate", "8"},
      {"crop", "random-resized"}, {"erase", "0.25"}, {"mixup", "0.8"},      {"cutmix", "1"},
      {"label-smoothing", "0.1"}};
  if (!lipsformer)
    settings.insert(settings.end(),
                    {{"warmup-epochs", "20"}, {"vector-weight-decay", "0"}, {"beta2", "0.999"}});
  if (!model.starts_with("cswin")) return settings;
  // Batches of 2048 images at twice the rate, of 1024 for the largest model.
  const bool large = model == "cswin_b";
  const Settings own{{"lr", large ? "0.001" : "0.002"},
                     {"accumulate", large ? "8" : "16"},
                     {"weight-decay", large ? "0.1" : "0.05"},
                     {"average", large ? "0.99992" : "0.99984"}};
  settings.insert(settings.begin(), own.begin(), own.end());  // the first given counts
  return settings;
}

std::string describe_vision_presets() {
  return "Presets, for what neither the command line nor --config sets:\n"
         "  micro: a model for images of 28 x 28 (of CIFAR 32 x 32) that trains in minutes, 10 "
         "epochs without warm-up\n"
         "  paper: the sizes and the recipe of LipsFormer; of Swin (20 epochs of warm-up) for the "
         "others, of CSwin (twice the batch, averaged weights) for its own\n"
         "A model's name sets its sizes and parts; each can be set alone.";
}

}  // namespace lipgrad::cli
