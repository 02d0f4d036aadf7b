#include "lipgrad/weight_names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lipgrad/core/error.h>

namespace lipgrad::cli {
namespace {

// A name by which a family is known: in the file or, of graph networks, at the end of one.
struct Mark {
  const char* family;
  const char* name;
};
// Those that are also in files of other families come last.
constexpr Mark marks[] = {{"pyg-gat", "att_src"},
                          {"pyg-transformer", "lin_query.weight"},
                          {"pyg-gatv2", "att"},
                          {"timm-vit", "cls_token"},
                          {"lipsformer", "layers.0.blocks.0.dwconv_layers.0.weight"},
                          {"timm-swin", "head.fc.weight"},
                          {"swin", "layers.0.blocks.0.attn.relative_position_bias_table"}};

const char* mark_of(const std::string& family) {
  for (const Mark& mark : marks)
    if (family == mark.family) return mark.name;
  return "";
}

// Whether `text` ends with `.part`, or is the part.
bool ends_with_part(const std::string& text, const std::string& part) {
  return text == part || text.ends_with("." + part);
}

std::int64_t number_in(const std::string& text) {
  const auto first =
      std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  std::int64_t number = -1;
  std::from_chars(text.data() + (first - text.begin()), text.data() + text.size(), number);
  return number;
}

// What stands before the mark in the file's names, by the number in it.
std::vector<std::string> layers_of(const std::string& mark, const SafetensorsFile& file) {
  std::vector<std::string> layers;
  for (const auto& tensor : file.tensors())
    if (ends_with_part(tensor.name, mark))
      layers.push_back(tensor.name.substr(0, tensor.name.size() - mark.size()));
  std::sort(layers.begin(), layers.end(), [](const std::string& a, const std::string& b) {
    return std::pair(number_in(a), std::string_view(a)) <
           std::pair(number_in(b), std::string_view(b));
  });
  return layers;
}

std::string recognised(const SafetensorsFile& file) {
  for (const auto& [family, name] : marks)
    for (const auto& tensor : file.tensors()) {
      const bool graph = std::string_view(family).starts_with("pyg-");
      if (graph ? ends_with_part(tensor.name, name) : tensor.name == name) return family;
    }
  throw Error(
      fmt::format("{}: its names are those of no model known here; give --names if they are ({})",
                  file.path(), fmt::join(WeightNames::families(), ", ")));
}

constexpr std::string_view kConv = "conv.", kLayers = "layers.", kDownsample = ".downsample.";

}  // namespace

const std::vector<std::string>& WeightNames::families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Mark& mark : marks) all.emplace_back(mark.family);
    all.emplace_back("lipgrad");
    return all;
  }();
  return names;
}

WeightNames WeightNames::in_file(const std::string& family, const SafetensorsFile& file) {
  WeightNames names(family == "auto" ? recognised(file) : family);
  if (!names.is_graph_network()) return names;
  names.layers_ = layers_of(mark_of(names.family_), file);
  if (names.layers_.empty())
    throw Error(fmt::format("{}: no name ends with {}, as those of {} do", file.path(),
                            mark_of(names.family_), names.family_));
  return names;
}

WeightNames WeightNames::for_model(const std::string& family, const std::string& model) {
  for (const Mark& mark : marks) {
    const std::string its = WeightNames(mark.family).model();
    const bool same =
        its.starts_with("gat") || its == "transformer" ? model == its : model.starts_with(its);
    // Of two families with the same models, timm's names are given when they are asked for.
    if (same && (family == mark.family ||
                 (family == "auto" && std::string_view(mark.family) != "timm-swin")))
      return WeightNames(mark.family);
  }
  if (family == "auto" || family == "lipgrad") return WeightNames("lipgrad");
  throw Error(fmt::format("--names {}: these are no names of a {}", family, model));
}

std::string WeightNames::model() const {
  if (is_graph_network()) return family_.substr(4);
  if (family_ == "timm-vit") return "vit";
  return family_ == "lipsformer" ? "lipsformer_swin" : "swin";
}

std::string WeightNames::theirs(const std::string& ours) const {
  if (is_graph_network() && ours.starts_with(kConv)) {
    const auto dot = ours.find('.', kConv.size());
    const auto layer = static_cast<std::size_t>(number_in(ours));
    const std::string name = ours.substr(dot + 1);
    if (layers_.empty()) return fmt::format("convs.{}.{}", layer, name);
    return layer < layers_.size() ? layers_[layer] + name : ours;
  }
  if (family_ == "timm-swin" && ours.starts_with("head.")) return "head.fc." + ours.substr(5);
  const auto at = ours.find(kDownsample);
  if (family_ == "timm-swin" && ours.starts_with(kLayers) && at != std::string::npos)
    return fmt::format("layers.{}{}", number_in(ours) + 1, ours.substr(at));
  return ours;
}

Shape WeightNames::theirs(const std::string& ours, const Shape& shape) const {
  const bool attention = ends_with_part(ours, "att") || ends_with_part(ours, "att_src") ||
                         ends_with_part(ours, "att_dst");
  return is_graph_network() && attention ? shape.inserted(0, 1) : shape;
}

bool WeightNames::is_derived(const std::string& theirs) const {
  return !is_graph_network() &&
         (ends_with_part(theirs, "relative_position_index") || ends_with_part(theirs, "attn_mask"));
}

}  // namespace lipgrad::cli
