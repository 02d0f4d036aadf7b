#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lipgrad/core/safetensors.h>
#include <lipgrad/core/shape.h>

#include "lipgrad/settings.h"

// Weights of other programs: how their tensors are named, and what names and shapes tell of a
// model.
namespace lipgrad::cli {

// How one family of models names the tensors of a file. Lipgrad's models have the published names,
// so that little differs.
class WeightNames {
 public:
  // timm-vit, timm-swin, swin, lipsformer, pyg-gat, pyg-gatv2, pyg-transformer; and lipgrad: the
  // names of any model here.
  static const std::vector<std::string>& families();

  // Names of a family in this file; of "auto" in that which the file's names are of. Error when
  // they are of none.
  static WeightNames in_file(const std::string& family, const SafetensorsFile& file);
  // Names to give the tensors of a checkpoint of this model; of "auto" in the usual ones. Error for
  // a family that has no such model.
  static WeightNames for_model(const std::string& family, const std::string& model);

  const std::string& family() const { return family_; }
  bool is_graph_network() const { return family_.starts_with("pyg-"); }
  // The model, or for images the family of models, that has such names.
  std::string model() const;
  // What the family's layers are called in the file, in order; of graph networks only.
  const std::vector<std::string>& layers() const { return layers_; }

  // The file's name for one of lipgrad's parameters or buffers, and the shape it has there.
  std::string theirs(const std::string& ours) const;
  Shape theirs(const std::string& ours, const Shape& shape) const;
  // Whether a tensor of the file holds nothing but what follows from the model's sizes.
  bool is_derived(const std::string& theirs) const;

 private:
  explicit WeightNames(std::string family) : family_(std::move(family)) {}

  std::string family_;
  std::vector<std::string> layers_;
};

// What the file's names and shapes tell of the model, by options of `lipgrad train`, and how many
// features come in and classes go out; of a graph network, edge features too.
struct WeightSizes {
  Settings settings;
  std::int64_t in = 0, out = 0, edge_features = 0;
};
// Error "<path>: ..." for files that lack what tells it. heads: of layers whose shapes do not tell
// them, those of pyg-transformer; 0 when they are not known.
WeightSizes vision_sizes(const SafetensorsFile& file, const WeightNames& names);
WeightSizes gnn_sizes(const SafetensorsFile& file, const WeightNames& names, std::int64_t heads);

}  // namespace lipgrad::cli
