#include <lipgrad/models/swin.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/recompute.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/reduce.h>

namespace lipgrad {
namespace {

// The window for maps of this size, and by how much blocks that shift it do.
Window window_of(const SwinOptions& options, std::int64_t height, std::int64_t width, bool shift) {
  const std::int64_t smaller = std::min(height, width);
  const std::int64_t window = std::min(options.window, smaller);
  const std::int64_t by = shift && smaller > options.window ? window / 2 : 0;
  return {window, window, by, by};
}

MultiHeadAttentionOptions attention_options(const SwinOptions& options, std::int64_t features,
                                            std::int64_t heads) {
  MultiHeadAttentionOptions attention = options.attention;
  attention.dim = features;
  attention.heads = heads;
  attention.weight_initializer = attention_initializer(options.block);
  attention.bias_initializer = init::zeros();
  attention.projection_dropout = options.block.dropout;
  attention.dtype = options.block.dtype;
  return attention;
}

SwinOptions checked(SwinOptions o) {
  LIPGRAD_CHECK(o.patch >= 1 && o.image_height >= 1 && o.image_width >= 1 &&
                    o.image_height % o.patch == 0 && o.image_width % o.patch == 0,
                "Swin: images of {} x {} are not made of patches of {} x {}", o.image_height,
                o.image_width, o.patch, o.patch);
  LIPGRAD_CHECK(o.depths.size() <= 8, "Swin: {} stages; expects at most 8", o.depths.size());
  LIPGRAD_CHECK(!o.depths.empty() && o.depths.size() == o.heads.size(),
                "Swin: {} depths and {} numbers of heads; expects one of each a stage",
                o.depths.size(), o.heads.size());
  LIPGRAD_CHECK(o.width >= 1 && o.window >= 1 && o.channels >= 1 && o.classes >= 1,
                "Swin: width {}, window {}, channels {} and classes {} must be at least 1", o.width,
                o.window, o.channels, o.classes);
  LIPGRAD_CHECK(o.drop_path >= 0 && o.drop_path < 1, "Swin: drop path {} is not in [0, 1)",
                o.drop_path);
  std::int64_t height = o.image_height / o.patch, width = o.image_width / o.patch;
  for (std::size_t stage = 0; stage < o.depths.size(); ++stage) {
    if (stage > 0) {
      LIPGRAD_CHECK(height % 2 == 0 && width % 2 == 0,
                    "Swin: the map of {} x {} after stage {} cannot be halved", height, width,
                    stage);
      height /= 2, width /= 2;
    }
    const std::int64_t features = o.width << stage;
    LIPGRAD_CHECK(o.depths[stage] >= 1 && o.heads[stage] >= 1 && features % o.heads[stage] == 0,
                  "Swin: stage {} of {} blocks, {} features and {} heads", stage + 1,
                  o.depths[stage], features, o.heads[stage]);
    const Window window = window_of(o, height, width, false);
    LIPGRAD_CHECK(height % window.height == 0 && width % window.width == 0,
                  "Swin: the map of {} x {} in stage {} is not made of windows of {} x {}", height,
                  width, stage + 1, window.height, window.width);
  }
  o.block.blocks = std::accumulate(o.depths.begin(), o.depths.end(), std::int64_t{0});
  return o;
}

std::int64_t last_width(const SwinOptions& o) { return o.width << (o.depths.size() - 1); }

}  // namespace

Swin::Block::Block(Module& parent, std::string name, const SwinOptions& options,
                   std::int64_t features, std::int64_t heads, std::int64_t height,
                   std::int64_t width, bool shift, double drop_path)
    : ResidualBlock(parent, std::move(name), features, options.block, drop_path),
      height_(height),
      width_(width),
      window_(window_of(options, height, width, shift)),
      attn(*this, "attn", attention_options(options, features, heads),
           {window_.height, window_.width, options.position}) {
  if (window_.shift_down > 0) regions_ = window_regions(height, width, window_);
}

Tensor Swin::Block::forward(const Tensor& x, Mode mode) const {
  const ModuleScope scope(path());
  Tensor regions = regions_;
  if (regions.defined() && x.device() != cpu_device) {
    if (!regions_elsewhere_.defined() || regions_elsewhere_.device() != x.device())
      regions_elsewhere_ = regions_.to(x.device());
    regions = regions_elsewhere_;
  }
  return run(
      x,
      [&](const Tensor& tokens) {
        const Tensor windows = window_partition(tokens, window_);
        return window_reverse(attn.forward(windows, regions, mode), height_, width_, window_);
      },
      mode);
}

void Swin::Block::add_costs(ModuleCosts& costs) const {
  const std::int64_t tokens = height_ * width_, c = features();
  const std::int64_t others = window_.height * window_.width;
  ModuleCosts rest;
  ResidualBlock::add_costs(tokens, rest);
  // In the order of the forward pass: convolutions, attention, MLP.
  const auto mlp = rest.end() - 2;
  costs.insert(costs.end(), rest.begin(), mlp);
  costs.push_back({attn.path() + ".qkv", tokens * 3 * c * c});
  costs.push_back({attn.path(), 2 * tokens * others * c});
  costs.push_back({attn.path() + ".proj", tokens * c * c});
  costs.insert(costs.end(), mlp, rest.end());
}

Swin::Downsample::Downsample(Module& parent, std::string name, std::int64_t features,
                             const BlockOptions& options)
    : Module(parent, std::move(name)),
      norm(*this, "norm", 4 * features, options),
      reduction(*this, "reduction", 4 * features, 2 * features,
                {.bias = false,
                 .weight_initializer = linear_initializer(options),
                 .dtype = options.dtype}) {}

Tensor Swin::Downsample::forward(const Tensor& x) const {
  return reduction.forward(norm.forward(patch_merge(x)));
}

Swin::Swin(const SwinOptions& options)
    : options_(checked(options)),
      patch_embed(
          *this, "patch_embed", options_.channels, options_.width, Size2d(options_.patch),
          {.weight_initializer = conv_initializer(options_.block), .dtype = options_.block.dtype}),
      patch_norm(patch_embed, "norm", options_.width, options_.block),
      norm(*this, "norm", last_width(options_), options_.block),
      head(*this, "head", last_width(options_), options_.classes,
           {.weight_initializer = linear_initializer(options_.block),
            .bias_initializer = init::zeros(),
            .dtype = options_.block.dtype}) {
  const SwinOptions& o = options_;
  std::int64_t height = o.image_height / o.patch, width = o.image_width / o.patch, number = 0;
  const std::int64_t last = std::max<std::int64_t>(1, o.block.blocks - 1);
  for (std::size_t s = 0; s < o.depths.size(); ++s) {
    const std::int64_t features = o.width << s;
    Stage& stage = layers.emplace_back();
    for (std::int64_t i = 0; i < o.depths[s]; ++i, ++number)
      stage.blocks.emplace_back(
          o, features, o.heads[s], height, width, o.shift && i % 2 == 1,
          o.drop_path * static_cast<double>(number) / static_cast<double>(last));
    if (s + 1 == o.depths.size()) break;
    stage.downsample.emplace(stage, "downsample", features, o.block);
    height /= 2, width /= 2;
  }
}

Tensor Swin::forward(const Tensor& images, Mode mode) const {
  LIPGRAD_CHECK(images.rank() == 4 && images.size(1) == options_.channels &&
                    images.size(2) == options_.image_height &&
                    images.size(3) == options_.image_width,
                "Swin: expects images (B, {}, {}, {}), got {}", options_.channels,
                options_.image_height, options_.image_width, images.shape());
  Tensor x = patch_norm.forward(patch_embed.forward(images));
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const Stage& stage = layers[s];
    for (std::size_t i = 0; i < stage.blocks.size(); ++i) {
      const Block& block = stage.blocks[i];
      x = options_.checkpoint_blocks && mode.is_train()
              ? checkpoint([&block, mode](Inputs in) { return block.forward(in[0], mode); },
                           mode.rng(), x)
              : block.forward(x, mode);
    }
    if (stage.downsample) x = stage.downsample->forward(x);
  }
  return head.forward(mean(norm.forward(x), {1, 2}));
}

ModuleCosts Swin::multiply_adds() const {
  const SwinOptions& o = options_;
  std::int64_t tokens = o.image_height / o.patch * (o.image_width / o.patch);
  ModuleCosts costs;
  costs.push_back({"patch_embed.proj", tokens * o.width * o.channels * o.patch * o.patch});
  for (std::size_t s = 0; s < layers.size(); ++s) {
    const std::int64_t features = o.width << s;
    for (std::size_t i = 0; i < layers[s].blocks.size(); ++i) layers[s].blocks[i].add_costs(costs);
    if (!layers[s].downsample) continue;
    tokens /= 4;
    costs.push_back({layers[s].downsample->reduction.path(), tokens * 8 * features * features});
  }
  costs.push_back({"head", head.weight.numel()});
  return costs;
}

SwinOptions swin_options(const std::string& name) {
  SwinOptions o;
  std::string size = name;
  const auto drop = [&](const std::string& prefix) {
    if (!size.starts_with(prefix)) return false;
    size.erase(0, prefix.size());
    return true;
  };
  const bool lipsformer = drop("lipsformer_swin_");
  const bool known = lipsformer || drop("swin_");
  if (size == "t") {
    o.drop_path = 0.2;
  } else if (size == "t5" && lipsformer) {
    o.depths = {2, 2, 5, 2};
    o.drop_path = 0.2;
  } else if (size == "s") {
    o.depths = {2, 2, 18, 2};
    o.drop_path = 0.3;
  } else if (size == "b" || (size == "l" && lipsformer)) {
    o.depths = {2, 2, 18, 2};
    o.width = size == "b" ? 128 : 192;
    o.heads = size == "b" ? std::vector<std::int64_t>{4, 8, 16, 32}
                          : std::vector<std::int64_t>{6, 12, 24, 48};
    o.drop_path = 0.5;
  } else if (size == "micro") {
    o.image_height = o.image_width = 28;
    o.channels = 1;
    o.classes = 10;
    o.patch = 2;
    o.width = lipsformer ? 48 : 52;  // about 355 000 parameters each
    o.depths = {2, 2};
    o.heads = lipsformer ? std::vector<std::int64_t>{3, 6} : std::vector<std::int64_t>{4, 8};
    o.drop_path = 0.05;
  } else {
    size.clear();
  }
  LIPGRAD_CHECK(known && !size.empty(),
                "Swin: there is no model '{}'; there are swin_t, _s, _b and _micro, and "
                "lipsformer_swin_t, _t5, _s, _b, _l and _micro",
                name);
  if (!lipsformer) return o;
  o.shift = false;
  o.attention.attention.score = AttentionScore::cosine;
  o.attention.attention.tau = 10;
  o.block.norm = TokenNormKind::center;
  o.block.place = NormPlace::post;
  o.block.shortcut = ShortcutKind::weighted;
  o.block.convolutions = true;
  o.block.init = VisionInit::spectral;
  return o;
}

}  // namespace lipgrad
