#include <algorithm>

#include <fmt/format.h>

#include <lipgrad/core/error.h>

#include "lipgrad/gnn_settings.h"

namespace lipgrad::cli {
namespace {

// alpha L at first that served best at 2, 10 and 30 layers, straight between them.
double depth_gain(std::int64_t layers) {
  const double l = static_cast<double>(layers);
  return l <= 2 ? l : l <= 10 ? 2 + (l - 2) * 3 / 8 : std::min(12.0, 5 + (l - 10) * 7 / 20);
}

}  // namespace

std::vector<std::string> preset_names() {
  return {"paper", "standard", "contrast", "depth", "missing"};
}

Settings preset(const std::string& name, GnnLayer layer, std::optional<std::int64_t> layers,
                const std::string& data) {
  Settings settings;
  const auto add = [&](std::initializer_list<Settings::value_type> more) {
    settings.insert(settings.end(), more);
  };
  const bool attention = has_attention(layer);
  if (name == "paper") return settings;
  if (name == "standard") {
    add({{"layers", "2"},
         {"hidden", attention ? "8" : "16"},
         {"row-normalize", "true"},
         {"schedule", "constant"},
         {"epochs", "200"},
         {"select", "score"}});
    if (layer != GnnLayer::ggnn) add({{"linear-ends", "false"}});
    if (attention) add({{"heads", "8"}, {"attention-dropout", "0.6"}});
    if (layer == GnnLayer::gcn) add({{"dropout", "0.5"}, {"lr", "0.01"}});
  } else if (name == "contrast") {
    add({{"layers", "30"},
         {"lr", "0.001"},
         {"schedule", "constant"},
         {"epochs", "220"},
         {"select", "score"}});
    if (attention) add({{"heads", "4"}, {"attention-norm", "lipschitz"}});
  } else if (name == "depth") {
    add({{"layers", "30"},
         {"row-normalize", "true"},
         {"norm", "centernorm"},
         {"residual", "damped"},
         {"residual-gain", fmt::format("{}", depth_gain(layers.value_or(30)))},
         {"initial-residual", "0.1"},
         {"init", "spectral"},
         {"input-activation", "true"},
         {"last-activation", "true"},
         {"dropout", "0.2"},
         {"input-dropout", "0.8"},
         {"output-dropout", "0.8"},
         {"lr", "0.01"},
         {"layer-weight-decay", "0.01"},
         {"scale-weight-decay", "0"},
         {"scale-lr-factor", "0.02"},
         {"schedule", "constant"},
         {"epochs", "250"},
         {"select", "loss"}});
    if (layer != GnnLayer::ggnn) add({{"identity-map", "0.5"}});
    if (attention)
      add({{"heads", "1"}, {"attention-norm", "lipschitz"}, {"attention-dropout", "0"}});
  } else if (name == "missing") {
    const bool citeseer = data == "citeseer";
    add({{"layers", citeseer ? "9" : "11"},
         {"missing", "100"},
         {"schedule", "cosine"},
         {"epochs", citeseer ? "300" : "500"},
         {"select", "score"}});
    if (attention) add({{"heads", "1"}, {"attention-norm", "lipschitz"}});
  } else {
    throw Error(
        fmt::format("unknown preset '{}'; there are: {}", name, fmt::join(preset_names(), ", ")));
  }
  return settings;
}

std::string describe_presets(GnnLayer layer) {
  std::string text = "Presets, for what neither the command line nor --config sets:\n";
  text += "  paper: the defaults above, the LipschitzNorm paper's protocol\n";
  for (const std::string& name : preset_names()) {
    if (name == "paper") continue;
    std::string line = "  " + name + ":";
    for (const auto& [option, value] : preset(name, layer, std::nullopt, "cora")) {
      const std::string word = fmt::format(" {} {}", option, value);
      const std::size_t begin = line.rfind('\n') == std::string::npos ? 0 : line.rfind('\n') + 1;
      if (line.size() - begin + word.size() > 96) line += "\n   ";
      line += word + ",";
    }
    line.back() = '\n';
    text += line;
  }
  text +=
      "  (depth: the gain is 2 at 2 layers, 5 at 10, 12 from 30 on; missing: on citeseer 9 "
      "layers and\n  300 epochs)";
  return text;
}

}  // namespace lipgrad::cli
