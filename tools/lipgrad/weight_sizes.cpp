#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lipgrad/core/error.h>

#include "lipgrad/vision_settings.h"
#include "lipgrad/weight_names.h"

namespace lipgrad::cli {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

// Looks up tensors by lipgrad's names.
class Tensors {
 public:
  Tensors(const SafetensorsFile& file, const WeightNames& names) : file_(file), names_(names) {}

  bool has(const std::string& ours) const { return file_.find(names_.theirs(ours)) != nullptr; }
  // Error unless it is there and has so many dimensions, and no zero among its sizes.
  const Shape& shape(const std::string& ours, int rank) const {
    const std::string theirs = names_.theirs(ours);
    const auto* tensor = file_.find(theirs);
    if (!tensor) refuse(fmt::format("it has no \"{}\"", theirs));
    if (tensor->shape.rank() != rank || tensor->shape.numel() == 0)
      refuse(
          fmt::format("\"{}\" is {}, expected {} dimensions", theirs, tensor->shape.str(), rank));
    return tensor->shape;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(fmt::format("{}: not a model with the names of {}: {}", file_.path(),
                            names_.family(), why));
  }
  // How many of prefix0, prefix1, ... there are, each followed by `rest`.
  std::int64_t count(const std::string& prefix, const std::string& rest) const {
    std::int64_t n = 0;
    while (has(prefix + text(n) + rest)) ++n;
    return n;
  }

 private:
  const SafetensorsFile& file_;
  const WeightNames& names_;
};

std::int64_t root(std::int64_t square) {
  return static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(square))));
}

void add_swin(const Tensors& tensors, const SafetensorsFile& file, std::int64_t patch,
              Settings& settings) {
  std::vector<std::int64_t> depths, heads;
  std::int64_t window = 0, image = 0;
  for (std::size_t stage = 0;; ++stage) {
    const std::string blocks = fmt::format("layers.{}.blocks.", stage);
    const std::int64_t depth = tensors.count(blocks, ".attn.qkv.weight");
    if (depth == 0) break;
    const Shape& table = tensors.shape(blocks + "0.attn.relative_position_bias_table", 2);
    depths.push_back(depth);
    heads.push_back(table[1]);
    window = std::max(window, (root(table[0]) + 1) / 2);
  }
  if (depths.empty()) tensors.refuse("it has no \"layers.0.blocks.0.attn.qkv.weight\"");
  // The masks of shifted windows, where they were kept, tell how many there are.
  if (const auto* mask = file.find("layers.0.blocks.1.attn_mask"); mask && mask->shape.rank() == 3)
    image = root(mask->shape[0]) * window * patch;
  else
    image = window * patch << (depths.size() - 1);
  settings.insert(settings.end(), {{"depths", fmt::format("{}", fmt::join(depths, ","))},
                                   {"heads", fmt::format("{}", fmt::join(heads, ","))},
                                   {"window", text(window)},
                                   {"image-size", text(image)}});
  const std::string block = "layers.0.blocks.0.";
  if (tensors.has(block + "dwconv_layers.0.weight"))
    settings.emplace_back("kernel", text(tensors.shape(block + "dwconv_layers.0.weight", 4)[2]));
  for (const char* name : {"tau", "nu"})
    if (tensors.has(block + "attn." + name))
      settings.emplace_back(fmt::format("learn-{}", name),
                            tensors.shape(block + "attn." + name, 1)[0] == 1 ? "one" : "each-head");
}

void add_vit(const Tensors& tensors, std::int64_t patch, std::int64_t width, Settings& settings) {
  const std::int64_t tokens = tensors.shape("pos_embed", 3)[1] - 1, side = root(tokens);
  if (tokens < 1 || side * side != tokens)
    tensors.refuse(
        fmt::format("\"pos_embed\" has {} tokens, expected a square and one more", tokens + 1));
  // Nothing tells the heads; the published models have one for 64 features.
  settings.insert(settings.end(), {{"depths", text(tensors.count("blocks.", ".attn.qkv.weight"))},
                                   {"heads", text(std::max<std::int64_t>(1, width / 64))},
                                   {"image-size", text(side * patch)}});
}

// The published model of these sizes, or the first of its family.
std::string label(const std::string& family, const Settings& settings) {
  const auto value = [](const Settings& all, const char* name) {
    for (const auto& [key, text] : all)
      if (key == name) return text;
    return std::string();
  };
  std::string first;
  for (const std::string& name : vision_model_names()) {
    if (!name.starts_with(family + "_") || name.ends_with("_micro")) continue;
    if (first.empty()) first = name;
    const Settings known = vision_model_settings(name);
    if (value(known, "width") == value(settings, "width") &&
        value(known, "depths") == value(settings, "depths"))
      return name;
  }
  return first;
}

}  // namespace

WeightSizes vision_sizes(const SafetensorsFile& file, const WeightNames& names) {
  const Tensors tensors(file, names);
  const Shape& patches = tensors.shape("patch_embed.proj.weight", 4);
  const std::int64_t width = patches[0], patch = patches[2];
  WeightSizes sizes{{{"patch", text(patch)}, {"width", text(width)}},
                    patches[1],
                    tensors.shape("head.weight", 2)[0]};
  const bool vit = names.model() == "vit";
  if (vit)
    add_vit(tensors, patch, width, sizes.settings);
  else
    add_swin(tensors, file, patch, sizes.settings);
  const std::string block = vit ? "blocks.0." : "layers.0.blocks.0.";
  const auto hidden = static_cast<double>(tensors.shape(block + "mlp.fc1.weight", 2)[0]);
  sizes.settings.emplace_back("mlp-ratio", fmt::format("{}", hidden / static_cast<double>(width)));
  if (!tensors.has(block + "attn.qkv.bias")) sizes.settings.emplace_back("qkv-bias", "none");
  sizes.settings.emplace_back("model", label(names.model(), sizes.settings));
  return sizes;
}

WeightSizes gnn_sizes(const SafetensorsFile& file, const WeightNames& names, std::int64_t heads) {
  const Tensors tensors(file, names);
  const auto layers = static_cast<std::int64_t>(names.layers().size());
  const std::string model = names.model(), first = "conv.0.",
                    last = fmt::format("conv.{}.", layers - 1);
  const bool ends = tensors.has("input.weight");
  WeightSizes sizes;
  Settings& s = sizes.settings;
  s = {{"layers", text(layers)},
       {"linear-ends", ends ? "true" : "false"},
       {"norm", "none"},
       {"residual", "none"},
       {"initial-residual", "0"},
       {"identity-map", "0"},
       {"attention-norm", "none"},
       {"input-activation", "false"},
       {"last-activation", "false"}};
  const char* source = model == "gat"     ? "lin.weight"
                       : model == "gatv2" ? "lin_l.weight"
                                          : "lin_value.weight";
  sizes.in = tensors.shape(first + source, 2)[1];
  if (tensors.has(first + "lin_edge.weight"))
    sizes.edge_features = tensors.shape(first + "lin_edge.weight", 2)[1];
  std::int64_t out = 0;  // of a head of the last layer
  if (model == "transformer") {
    // Only what a last layer averages over its heads tells how many these are.
    const bool root = tensors.has(first + "lin_skip.weight");
    s.insert(s.end(), {{"root", root ? "true" : "false"},
                       {"beta-gate", tensors.has(first + "lin_beta.weight") ? "true" : "false"}});
    if (ends || layers > 1) {
      const std::int64_t features = tensors.shape(first + source, 2)[0];
      if (heads < 1 || features % heads != 0)
        tensors.refuse(
            fmt::format("its shapes do not tell the heads of its layers: give --heads, "
                        "a divisor of {}",
                        features));
      s.insert(s.end(), {{"heads", text(heads)}, {"hidden", text(features / heads)}});
    }
    const std::int64_t rows = tensors.shape(last + source, 2)[0];
    out = root ? tensors.shape(last + "lin_skip.weight", 2)[0] : rows;
    if (!ends) s.emplace_back("out-heads", text(std::max<std::int64_t>(1, rows / out)));
  } else {
    const char* att = model == "gat" ? "att_src" : "att";
    const Shape& of_first = tensors.shape(first + att, 3);
    const Shape& of_last = tensors.shape(last + att, 3);
    s.insert(s.end(), {{"heads", text(of_first[1])}, {"hidden", text(of_first[2])}});
    if (!ends) s.emplace_back("out-heads", text(of_last[1]));
    out = of_last[2];
  }
  if (ends) {
    const Shape& input = tensors.shape("input.weight", 2);
    s.emplace_back("input-width", text(input[0]));
    sizes.in = input[1];
    out = tensors.shape("output.weight", 2)[0];
  }
  sizes.out = out;
  return sizes;
}

}  // namespace lipgrad::cli
