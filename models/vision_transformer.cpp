#include <lipgrad/models/vision_transformer.h>

#include <algorithm>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

MultiHeadAttentionOptions attention_options(const VisionTransformerOptions& options) {
  MultiHeadAttentionOptions attention = options.attention;
  attention.dim = options.width;
  attention.heads = options.heads;
  attention.weight_initializer = attention_initializer(options.block);
  attention.bias_initializer = init::zeros();
  attention.projection_dropout = options.block.dropout;
  attention.dtype = options.block.dtype;
  return attention;
}

VisionTransformerOptions checked(VisionTransformerOptions o) {
  LIPGRAD_CHECK(o.patch >= 1 && o.image_height >= 1 && o.image_width >= 1 &&
                    o.image_height % o.patch == 0 && o.image_width % o.patch == 0,
                "VisionTransformer: images of {} x {} are not made of patches of {} x {}",
                o.image_height, o.image_width, o.patch, o.patch);
  LIPGRAD_CHECK(o.width >= 1 && o.depth >= 1 && o.heads >= 1 && o.width % o.heads == 0,
                "VisionTransformer: width {}, depth {} and {} heads", o.width, o.depth, o.heads);
  LIPGRAD_CHECK(o.channels >= 1 && o.classes >= 1,
                "VisionTransformer: channels {} and classes {} must be at least 1", o.channels,
                o.classes);
  LIPGRAD_CHECK(o.drop_path >= 0 && o.drop_path < 1,
                "VisionTransformer: drop path {} is not in [0, 1)", o.drop_path);
  LIPGRAD_CHECK(!o.block.convolutions,
                "VisionTransformer: tokens with a class token are no map to convolve");
  o.block.blocks = o.depth;
  return o;
}

std::int64_t patches(const VisionTransformerOptions& o) {
  return o.image_height / o.patch * (o.image_width / o.patch);
}

}  // namespace

VisionTransformer::Block::Block(Module& parent, std::string name,
                                const VisionTransformerOptions& options, double drop_path)
    : ResidualBlock(parent, std::move(name), options.width, options.block, drop_path),
      attn(*this, "attn", attention_options(options)) {}

Tensor VisionTransformer::Block::forward(const Tensor& x, Mode mode) const {
  const ModuleScope scope(path());
  return run(
      x, [&](const Tensor& tokens) { return attn.forward(tokens, mode); }, mode);
}

void VisionTransformer::Block::add_costs(std::int64_t tokens, ModuleCosts& costs) const {
  const std::int64_t c = features();
  costs.push_back({attn.path() + ".qkv", tokens * 3 * c * c});
  costs.push_back({attn.path(), 2 * tokens * tokens * c});
  costs.push_back({attn.path() + ".proj", tokens * c * c});
  ResidualBlock::add_costs(tokens, costs);
}

VisionTransformer::VisionTransformer(const VisionTransformerOptions& options)
    : options_(checked(options)),
      cls_token(*this, "cls_token", {1, 1, options_.width}, init::normal(0, 0.02),
                options_.block.dtype),
      pos_embed(*this, "pos_embed", {1, 1 + patches(options_), options_.width},
                init::normal(0, 0.02), options_.block.dtype),
      patch_embed(
          *this, "patch_embed", options_.channels, options_.width, Size2d(options_.patch),
          {.weight_initializer = conv_initializer(options_.block), .dtype = options_.block.dtype}),
      norm(*this, "norm", options_.width, options_.block),
      head(*this, "head", options_.width, options_.classes,
           {.weight_initializer = linear_initializer(options_.block),
            .bias_initializer = init::zeros(),
            .dtype = options_.block.dtype}) {
  const double last = static_cast<double>(std::max<std::int64_t>(1, options_.depth - 1));
  for (std::int64_t i = 0; i < options_.depth; ++i)
    blocks.emplace_back(options_, options_.drop_path * static_cast<double>(i) / last);
}

Tensor VisionTransformer::forward(const Tensor& images, Mode mode) const {
  const VisionTransformerOptions& o = options_;
  LIPGRAD_CHECK(images.rank() == 4 && images.size(1) == o.channels &&
                    images.size(2) == o.image_height && images.size(3) == o.image_width,
                "VisionTransformer: expects images (B, {}, {}, {}), got {}", o.channels,
                o.image_height, o.image_width, images.shape());
  const std::int64_t batch = images.size(0);
  const Tensor tokens = reshape(patch_embed.forward(images), {batch, patches(o), o.width});
  const Tensor first = broadcast_to(cls_token, {batch, 1, o.width});
  Tensor x = concat({first, tokens}, 1) + pos_embed;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    x = o.checkpoint_blocks && mode.is_train()
            ? checkpoint([&block, mode](Inputs in) { return block.forward(in[0], mode); },
                         mode.rng(), x)
            : block.forward(x, mode);
  }
  // Rows are normed one by one: only the class token's is needed.
  return head.forward(norm.forward(reshape(slice(x, 1, 0, 1), {batch, o.width})));
}

ModuleCosts VisionTransformer::multiply_adds() const {
  const VisionTransformerOptions& o = options_;
  ModuleCosts costs;
  costs.push_back({"patch_embed.proj", patches(o) * o.width * o.channels * o.patch * o.patch});
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].add_costs(1 + patches(o), costs);
  costs.push_back({"head", head.weight.numel()});
  return costs;
}

VisionTransformerOptions vit_options(const std::string& name) {
  VisionTransformerOptions o;
  if (name == "vit_s" || name == "vit_b") {
    o.width = name == "vit_s" ? 384 : 768;
    o.heads = name == "vit_s" ? 6 : 12;
  } else if (name == "vit_micro") {
    o.image_height = o.image_width = 28;
    o.channels = 1;
    o.classes = 10;
    o.patch = 4;
    o.width = 64;
    o.depth = 6;
    o.heads = 4;
  } else {
    LIPGRAD_CHECK(name == "vit_ti",
                  "VisionTransformer: there is no model '{}'; there are vit_ti, vit_s, vit_b and "
                  "vit_micro",
                  name);
  }
  return o;
}

}  // namespace lipgrad
