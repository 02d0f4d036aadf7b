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

struct Map {
  std::int64_t height, width;
};

Map map_of(const SwinOptions& o, std::size_t stage) {
  return {(o.image_height / o.patch) >> stage, (o.image_width / o.patch) >> stage};
}

std::int64_t width_of(const SwinOptions& o, std::size_t stage) { return o.width << stage; }
std::int64_t last_width(const SwinOptions& o) { return width_of(o, o.depths.size() - 1); }

bool is_cross(const SwinOptions& o) { return o.windows == WindowShape::cross; }

// The window for maps of this size, and by how much blocks that shift it do.
Window window_of(const SwinOptions& options, const Map& map, bool shift) {
  const std::int64_t smaller = std::min(map.height, map.width);
  const std::int64_t window = std::min(options.window, smaller);
  const std::int64_t by = shift && smaller > options.window ? window / 2 : 0;
  return {window, window, by, by};
}

CrossShape cross_of(const SwinOptions& o, std::size_t stage) {
  const auto [height, width] = map_of(o, stage);
  const std::int64_t split = o.splits[stage];
  const bool whole = stage + 1 == o.depths.size() || (height <= split && width <= split);
  return {height, width, whole ? 0 : split};
}

double drop_path_of(const SwinOptions& o, std::size_t stage, std::int64_t number) {
  for (std::size_t s = 0; s < stage; ++s) number += o.depths[s];
  const std::int64_t last = std::accumulate(o.depths.begin(), o.depths.end(), std::int64_t{0}) - 1;
  return o.drop_path * static_cast<double>(number) /
         static_cast<double>(std::max<std::int64_t>(1, last));
}

MultiHeadAttentionOptions attention_options(const SwinOptions& options, std::size_t stage) {
  MultiHeadAttentionOptions attention = options.attention;
  attention.dim = width_of(options, stage);
  attention.heads = options.heads[stage];
  attention.weight_initializer = attention_initializer(options.block);
  attention.bias_initializer = init::zeros();
  attention.projection_dropout = options.block.dropout;
  attention.dtype = options.block.dtype;
  return attention;
}

BlockOptions final_norm(const SwinOptions& o) {
  BlockOptions options = o.block;
  if (!o.final_norm) options.norm = TokenNormKind::none;
  return options;
}

void check_windows(const SwinOptions& o, std::size_t stage) {
  const Map map = map_of(o, stage);
  const Window window = window_of(o, map, false);
  LIPGRAD_CHECK(is_cross(o) || (map.height % window.height == 0 && map.width % window.width == 0),
                "Swin: the map of {} x {} in stage {} is not made of windows of {} x {}",
                map.height, map.width, stage + 1, window.height, window.width);
  const std::int64_t split = is_cross(o) ? cross_of(o, stage).split : 0;
  LIPGRAD_CHECK(split == 0 || (map.height % split == 0 && map.width % split == 0),
                "Swin: the map of {} x {} in stage {} is not made of stripes of {}", map.height,
                map.width, stage + 1, split);
  LIPGRAD_CHECK(split == 0 || o.heads[stage] % 2 == 0,
                "Swin: the {} heads of stage {} cannot be halved for the stripes of both sides",
                o.heads[stage], stage + 1);
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
  LIPGRAD_CHECK(o.merge_kernel == 0 || o.merge_kernel >= 2,
                "Swin: patches cannot be merged by a kernel of {}; expects at least 2, or 0",
                o.merge_kernel);
  LIPGRAD_CHECK(o.patch_kernel == 0 || o.patch_kernel >= o.patch,
                "Swin: a kernel of {} is smaller than patches of {}", o.patch_kernel, o.patch);
  if (is_cross(o)) {
    LIPGRAD_CHECK(
        o.splits.size() == o.depths.size() &&
            *std::min_element(o.splits.begin(), o.splits.end()) > 0,
        "Swin: {} depths and {} widths of stripes; expects one of each a stage, at least 1",
        o.depths.size(), o.splits.size());
    LIPGRAD_CHECK(!o.shift && o.position == PositionBias::none,
                  "Swin: cross-shaped windows have neither a shift nor a bias of positions");
  }
  for (std::size_t stage = 0; stage < o.depths.size(); ++stage) {
    if (stage > 0) {
      const auto [height, width] = map_of(o, stage - 1);
      LIPGRAD_CHECK(height % 2 == 0 && width % 2 == 0,
                    "Swin: the map of {} x {} after stage {} cannot be halved", height, width,
                    stage);
    }
    const std::int64_t features = width_of(o, stage);
    LIPGRAD_CHECK(o.depths[stage] >= 1 && o.heads[stage] >= 1 && features % o.heads[stage] == 0,
                  "Swin: stage {} of {} blocks, {} features and {} heads", stage + 1,
                  o.depths[stage], features, o.heads[stage]);
    check_windows(o, stage);
  }
  o.block.blocks = std::accumulate(o.depths.begin(), o.depths.end(), std::int64_t{0});
  return o;
}

}  // namespace

Swin::Block::Block(Module& parent, std::string name, const SwinOptions& options, std::size_t stage,
                   std::int64_t number)
    : ResidualBlock(parent, std::move(name), width_of(options, stage), options.block,
                    drop_path_of(options, stage, number)),
      height_(map_of(options, stage).height),
      width_(map_of(options, stage).width) {
  const MultiHeadAttentionOptions attention = attention_options(options, stage);
  if (is_cross(options)) {
    cross.emplace(*this, attention, cross_of(options, stage), depthwise_initializer(options.block));
    return;
  }
  window_ = window_of(options, {height_, width_}, options.shift && number % 2 == 1);
  attn.emplace(*this, "attn", attention,
               AttentionWindow{window_.height, window_.width, options.position});
  if (window_.shift_down > 0) regions_ = window_regions(height_, width_, window_);
}

Tensor Swin::Block::in_windows(const Tensor& x, Mode mode) const {
  Tensor regions = regions_;
  if (regions.defined() && x.device() != cpu_device) {
    if (!regions_elsewhere_.defined() || regions_elsewhere_.device() != x.device())
      regions_elsewhere_ = regions_.to(x.device());
    regions = regions_elsewhere_;
  }
  const Tensor windows = window_partition(x, window_);
  return window_reverse(attn->forward(windows, regions, mode), height_, width_, window_);
}

Tensor Swin::Block::forward(const Tensor& x, Mode mode) const {
  const ModuleScope scope(path());
  return run(
      x,
      [&](const Tensor& tokens) {
        return cross ? cross->forward(tokens, mode) : in_windows(tokens, mode);
      },
      mode);
}

void Swin::Block::add_costs(ModuleCosts& costs) const {
  const std::int64_t tokens = height_ * width_, c = features();
  ModuleCosts rest;
  ResidualBlock::add_costs(tokens, rest);
  // In the order of the forward pass: convolutions, attention, MLP.
  const auto mlp = rest.end() - 2;
  costs.insert(costs.end(), rest.begin(), mlp);
  const Linear &qkv = attn ? attn->qkv : cross->qkv, &proj = attn ? attn->proj : cross->proj;
  costs.push_back({qkv.path(), tokens * 3 * c * c});
  if (attn) costs.push_back({attn->path(), 2 * tokens * window_.height * window_.width * c});
  for (std::size_t i = 0; cross && i < cross->attns.size(); ++i) {
    const LepeAttention& part = cross->attns[i];
    const Window& window = cross->windows()[i];
    costs.push_back({part.path(), 2 * tokens * window.height * window.width * part.options().dim});
    costs.push_back({part.get_v.path(), tokens * part.get_v.weight.numel()});
  }
  costs.push_back({proj.path(), tokens * c * c});
  costs.insert(costs.end(), mlp, rest.end());
}

Swin::Downsample::Downsample(Module& parent, std::string name, std::int64_t features,
                             const SwinOptions& options)
    : Module(parent, std::move(name)),
      norm(*this, "norm", options.merge_kernel > 0 ? 2 * features : 4 * features, options.block) {
  const std::int64_t kernel = options.merge_kernel;
  if (kernel > 0) {
    conv.emplace(*this, "conv", features, 2 * features, Size2d(kernel),
                 Conv2dLayerOptions{.stride = 2,
                                    .padding = (kernel - 1) / 2,
                                    .weight_initializer = conv_initializer(options.block),
                                    .dtype = options.block.dtype});
  } else {
    reduction.emplace(*this, "reduction", 4 * features, 2 * features,
                      LinearLayerOptions{.bias = false,
                                         .weight_initializer = linear_initializer(options.block),
                                         .dtype = options.block.dtype});
  }
}

Tensor Swin::Downsample::forward(const Tensor& x) const {
  if (conv) return norm.forward(conv->forward(x));
  return reduction->forward(norm.forward(patch_merge(x)));
}

ModuleCost Swin::Downsample::cost(std::int64_t tokens) const {
  const Parameter& weight = conv ? conv->weight : reduction->weight;
  return {conv ? conv->path() : reduction->path(), tokens / 4 * weight.numel()};
}

Swin::Swin(const SwinOptions& options)
    : options_(checked(options)),
      patch_embed(*this, is_cross(options_) ? "stage1_conv_embed" : "patch_embed",
                  options_.channels, options_.width, Size2d(options_.patch),
                  {.kernel = Size2d(std::max(options_.patch, options_.patch_kernel)),
                   .layer = is_cross(options_) ? "0" : "proj",
                   .weight_initializer = conv_initializer(options_.block),
                   .dtype = options_.block.dtype}),
      patch_norm(patch_embed, is_cross(options_) ? "2" : "norm", options_.width, options_.block),
      norm(*this, "norm", last_width(options_), final_norm(options_)),
      head(*this, "head", last_width(options_), options_.classes,
           {.weight_initializer = linear_initializer(options_.block),
            .bias_initializer = init::zeros(),
            .dtype = options_.block.dtype}) {}

std::vector<std::unique_ptr<Swin::Stage>> Swin::make_stages() {
  const SwinOptions& o = options_;
  std::vector<std::unique_ptr<Stage>> all;
  for (std::size_t s = 0; s < o.depths.size(); ++s) {
    const std::string number = std::to_string(s + 1);
    Module& parent = is_cross(o) ? *this : layers.emplace_back();
    Stage& stage = *all.emplace_back(
        std::make_unique<Stage>(parent, is_cross(o) ? "stage" + number : "blocks"));
    for (std::int64_t i = 0; i < o.depths[s]; ++i) stage.blocks.emplace_back(o, s, i);
    if (s + 1 < o.depths.size())
      stage.downsample.emplace(parent, is_cross(o) ? "merge" + number : "downsample",
                               width_of(o, s), o);
  }
  return all;
}

Tensor Swin::forward(const Tensor& images, Mode mode) const {
  LIPGRAD_CHECK(images.rank() == 4 && images.size(1) == options_.channels &&
                    images.size(2) == options_.image_height &&
                    images.size(3) == options_.image_width,
                "Swin: expects images (B, {}, {}, {}), got {}", options_.channels,
                options_.image_height, options_.image_width, images.shape());
  Tensor x = patch_norm.forward(patch_embed.forward(images));
  for (const auto& stage : stages) {
    for (std::size_t i = 0; i < stage->blocks.size(); ++i) {
      const Block& block = stage->blocks[i];
      x = options_.checkpoint_blocks && mode.is_train()
              ? checkpoint([&block, mode](Inputs in) { return block.forward(in[0], mode); },
                           mode.rng(), x)
              : block.forward(x, mode);
    }
    if (stage->downsample) x = stage->downsample->forward(x);
  }
  return head.forward(mean(norm.forward(x), {1, 2}));
}

ModuleCosts Swin::multiply_adds() const {
  ModuleCosts costs;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto [height, width] = map_of(options_, s);
    if (s == 0)
      costs.push_back({patch_embed.proj.path(), height * width * patch_embed.proj.weight.numel()});
    const Stage& stage = *stages[s];
    for (std::size_t i = 0; i < stage.blocks.size(); ++i) stage.blocks[i].add_costs(costs);
    if (stage.downsample) costs.push_back(stage.downsample->cost(height * width));
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
  const bool lipsformer = drop("lipsformer_"), cross = drop("cswin_");
  const bool known = cross || drop("swin_");
  if (cross) {
    o.windows = WindowShape::cross;
    o.shift = false;
    o.position = PositionBias::none;
    o.patch_kernel = lipsformer ? 0 : 7;
    o.merge_kernel = lipsformer ? 2 : 3;
    o.final_norm = !lipsformer;
    o.width = 64;
    o.depths = {1, 2, 21, 1};
    o.heads = {2, 4, 8, 16};
  }
  if (size == "t") {
    o.drop_path = 0.2;
  } else if (size == "t5" && lipsformer && !cross) {
    o.depths = {2, 2, 5, 2};
    o.drop_path = 0.2;
  } else if ((size == "s" || size == "b") && cross && !lipsformer) {
    o.depths = {2, 4, 32, 2};
    o.drop_path = 0.4;
    if (size == "b") {
      o.width = 96;
      o.heads = {4, 8, 16, 32};
      o.drop_path = 0.5;
    }
  } else if (size == "s" && !cross) {
    o.depths = {2, 2, 18, 2};
    o.drop_path = 0.3;
  } else if ((size == "b" || (size == "l" && lipsformer)) && !cross) {
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
    o.patch_kernel = o.patch_kernel > 0 ? 3 : 0;
    o.width = lipsformer || cross ? 48 : 52;  // about 350 000 parameters each
    o.depths = {2, 2};
    o.heads =
        lipsformer && !cross ? std::vector<std::int64_t>{3, 6} : std::vector<std::int64_t>{4, 8};
    o.splits = {2, 7};
    o.drop_path = 0.05;
  } else {
    size.clear();
  }
  LIPGRAD_CHECK(
      known && !size.empty(),
      "Swin: there is no model '{}'; there are swin_t, _s, _b and _micro, cswin_t, _s, _b "
      "and _micro, lipsformer_swin_t, _t5, _s, _b, _l and _micro, lipsformer_cswin_t and "
      "_micro",
      name);
  if (!lipsformer) return o;
  o.shift = false;
  o.attention.attention.score = AttentionScore::cosine;
  o.attention.attention.tau = cross ? 12 : 10;
  o.attention.nu_over_heads = cross;
  o.block.norm = TokenNormKind::center;
  o.block.place = NormPlace::post;
  o.block.attention_norm = !cross;
  o.block.shortcut = ShortcutKind::weighted;
  if (cross) o.block.shortcut_initial = 0.2;
  o.block.convolutions = true;
  o.block.init = VisionInit::spectral;
  return o;
}

}  // namespace lipgrad
