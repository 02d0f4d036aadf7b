#include <lipgrad/vision/patches.h>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {

namespace {

void check_patches(const char* op, const Tensor& images, Size2d patch) {
  LIPGRAD_CHECK(images.rank() == 4, "{}: expects images (B, C, H, W), got {}", op, images.shape());
  const std::int64_t h = images.size(2), w = images.size(3);
  LIPGRAD_CHECK(
      patch.height >= 1 && patch.width >= 1 && h % patch.height == 0 && w % patch.width == 0,
      "{}: patches of {} x {} do not divide an image of {} x {}: resize, crop or pad it", op,
      patch.height, patch.width, h, w);
}

}  // namespace

Tensor extract_patches(const Tensor& images, Size2d patch) {
  check_patches("extract_patches", images, patch);
  const std::int64_t h = images.size(2), w = images.size(3), c = images.size(1);
  const std::int64_t down = h / patch.height, across = w / patch.width;
  const Tensor split =
      reshape(images, {images.size(0), c, down, patch.height, across, patch.width});
  return reshape(permute(split, {0, 2, 4, 1, 3, 5}),
                 Shape{images.size(0), down, across, c * patch.height * patch.width});
}

Tensor patch_merge(const Tensor& x) {
  LIPGRAD_CHECK(x.rank() == 4, "patch_merge: expects (B, H, W, C), got {}", x.shape());
  const std::int64_t b = x.size(0), h = x.size(1), w = x.size(2), c = x.size(3);
  LIPGRAD_CHECK(
      h % 2 == 0 && w % 2 == 0,
      "patch_merge: height and width of {} must be even: pad the image, or choose a patch "
      "size that leaves even numbers of patches",
      x.shape());
  const Tensor squares = reshape(x, {b, h / 2, 2, w / 2, 2, c});
  return reshape(permute(squares, {0, 1, 3, 4, 2, 5}), Shape{b, h / 2, w / 2, 4 * c});
}

namespace {

Size2d kernel_of(const PatchEmbedOptions& options, Size2d patch) {
  const Size2d kernel = options.kernel.value_or(patch);
  LIPGRAD_CHECK(kernel.height >= patch.height && kernel.width >= patch.width,
                "PatchEmbed: a kernel of {} x {} is smaller than patches of {} x {}", kernel.height,
                kernel.width, patch.height, patch.width);
  return kernel;
}

}  // namespace

PatchEmbed::PatchEmbed(Module& parent, std::string name, std::int64_t channels,
                       std::int64_t features, Size2d patch, const PatchEmbedOptions& options)
    : Module(parent, std::move(name)),
      proj(*this, options.layer, channels, features, kernel_of(options, patch),
           {.stride = patch,
            .padding = {(kernel_of(options, patch).height - patch.height + 1) / 2,
                        (kernel_of(options, patch).width - patch.width + 1) / 2},
            .bias = options.bias,
            .weight_initializer = options.weight_initializer,
            .bias_initializer = options.bias_initializer,
            .dtype = options.dtype}),
      channels_(channels),
      patch_(patch),
      overlapping_(kernel_of(options, patch) != patch) {}

Tensor PatchEmbed::forward(const Tensor& images) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(images.rank() == 4 && images.size(1) == channels_,
                "PatchEmbed: made for images (B, {}, H, W), got {}", channels_, images.shape());
  if (overlapping_) {
    check_patches("PatchEmbed", images, patch_);
    return proj.forward(permute(images, {0, 2, 3, 1}));
  }
  const Tensor patches = extract_patches(images, patch_);
  const Tensor weight = reshape(proj.weight, {proj.weight.shape()[0], patches.size(3)});
  return linear(patches, weight, proj.bias ? proj.bias->value() : Tensor());
}

PatchMerging::PatchMerging(Module& parent, std::string name, std::int64_t channels,
                           const PatchMergingOptions& options)
    : Module(parent, std::move(name)) {
  LIPGRAD_CHECK(channels >= 1, "PatchMerging: channels must be at least 1, got {}", channels);
  if (options.norm == PatchNorm::layer)
    layer_norm_.emplace(*this, "norm", 4 * channels, LayerNormOptions{.dtype = options.dtype});
  if (options.norm == PatchNorm::center)
    center_norm_.emplace(*this, "norm", 4 * channels, CenterNormOptions{.dtype = options.dtype});
  reduction_.emplace(
      *this, "reduction", 4 * channels, 2 * channels,
      LinearLayerOptions{
          .bias = false, .weight_initializer = options.weight_initializer, .dtype = options.dtype});
}

Tensor PatchMerging::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  Tensor y = patch_merge(x);
  if (layer_norm_) y = layer_norm_->forward(y);
  if (center_norm_) y = center_norm_->forward(y);
  return reduction_->forward(y);
}

}  // namespace lipgrad
