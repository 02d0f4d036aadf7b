#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/ops/conv2d.h>
#include <lipgrad/ops/layers.h>

namespace lipgrad {

// Images (B, C, H, W), channels first as they are loaded, as patches (B, H / ph, W / pw, C ph pw):
// of each patch channel by channel, rows from above, in the order of a convolution's weight. Error
// unless the patch's sizes divide the image's.
Tensor extract_patches(const Tensor& images, Size2d patch);

// The four pixels of each 2 x 2 square of x(B, H, W, C) side by side, (B, H / 2, W / 2, 4 C), in
// Swin's order: upper left, lower left, upper right, lower right (arXiv:2103.14030, section 3.1).
// Error unless H and W are even.
Tensor patch_merge(const Tensor& x);

struct PatchEmbedOptions {
  // Of the convolution; unset: the patch. Larger ones overlap and reach over all sides alike, or by
  // one pixel more over the upper and left ones.
  std::optional<Size2d> kernel = {};
  std::string layer = "proj";  // the convolution's name
  bool bias = true;
  Initializer weight_initializer{}, bias_initializer{};  // unset: as Conv2d
  DType dtype = f32;
};

// Images (B, channels, H, W) to one row of features a patch, (B, H / ph, W / pw, features): a
// convolution whose stride is the patch, and whose kernel too unless the options say another.
// Parameters: proj.weight (features, channels, kh, kw) and, unless options.bias is false, proj.bias
// (features). Error unless the patch's sizes divide the image's and are at most the kernel's.
class PatchEmbed : public Module {
 public:
  PatchEmbed(Module& parent, std::string name, std::int64_t channels, std::int64_t features,
             Size2d patch, const PatchEmbedOptions& options = {});

  Tensor forward(const Tensor& images) const;

  Conv2d proj;

 private:
  std::int64_t channels_;
  Size2d patch_;
  bool overlapping_;
};

enum class PatchNorm : std::uint8_t { layer, center, none };
struct PatchMergingOptions {
  PatchNorm norm = PatchNorm::layer;
  Initializer weight_initializer{};  // unset: as Linear
  DType dtype = f32;
};

// x(B, H, W, C) to (B, H / 2, W / 2, 2 C): patch_merge(), a norm of the 4 C features, and a linear
// layer without bias. Parameters: norm.weight, norm.bias (4 C), reduction.weight (2 C, 4 C).
class PatchMerging : public Module {
 public:
  PatchMerging(Module& parent, std::string name, std::int64_t channels,
               const PatchMergingOptions& options = {});

  Tensor forward(const Tensor& x) const;

 private:
  std::optional<LayerNorm> layer_norm_;
  std::optional<CenterNorm> center_norm_;
  std::optional<Linear> reduction_;
};

}  // namespace lipgrad
