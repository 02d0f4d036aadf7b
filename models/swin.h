#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/models/vision_block.h>
#include <lipgrad/vision/cross_shaped_attention.h>
#include <lipgrad/vision/patches.h>
#include <lipgrad/vision/window_attention.h>
#include <lipgrad/vision/windows.h>

namespace lipgrad {

// What a block's tokens attend to.
enum class WindowShape : std::uint8_t {
  square,  // windows, shifted in every second block
  cross,   // stripes along both sides: CrossShapedAttention; in the last stage the whole map
};

struct SwinOptions {
  std::int64_t image_height = 224, image_width = 224, channels = 3, classes = 1000;
  std::int64_t patch = 4;
  std::int64_t patch_kernel = 0;  // of the patches' projection, centred; 0: the patch
  std::int64_t width = 96;        // features of the first stage; twice as many in each that follows
  std::vector<std::int64_t> depths = {2, 2, 6, 2};  // blocks of each stage
  std::vector<std::int64_t> heads = {3, 6, 12, 24};
  WindowShape windows = WindowShape::square;
  std::int64_t window = 7;  // the whole map where that is no larger
  bool shift = true;        // every second block's windows are shifted by half a window
  // Widths of each stage's stripes, of cross alone; the whole map where that is as small.
  std::vector<std::int64_t> splits = {1, 2, 7, 7};
  // 0: merging is patch_merge(), norm, linear; k: a convolution of k x k and stride 2, norm.
  std::int64_t merge_kernel = 0;
  bool final_norm = true;
  MultiHeadAttentionOptions attention = {};     // but sizes, initialisers, dtype, dropout after it
  PositionBias position = PositionBias::table;  // none for cross, which has LePE
  BlockOptions block = {};                      // but `blocks`, which depths give
  double drop_path = 0;  // of the last block, rising evenly from 0 at the first
  // Each block keeps only what enters it in training and is computed again in backward.
  bool checkpoint_blocks = false;
};

// Vision transformers on windows, in stages of maps of half the size and twice the features: Swin
// (Liu et al., ICCV 2021), CSwin (Dong et al., CVPR 2022) and LipsFormer with the windows of either
// (Qi et al., LipsFormer, ICLR 2023) are settings of it.
//
//   x = norm(patches of the image, projected)
//   for each stage: blocks; all but the last: 2 x 2 patches merged
//   logits = linear(mean over tokens of norm(x))       "norm", "head"
//
// A block is ResidualBlock with attention in windows. Parameters have the names and shapes of the
// published checkpoints: patch_embed, layers.0.blocks.0 and layers.0.downsample for square windows,
// stage1_conv_embed, stage1.0 and merge1 for cross. Error for sizes that do not divide.
class Swin : public ImageClassifier {
 public:
  explicit Swin(const SwinOptions& options);

  Tensor forward(const Tensor& images, Mode mode) const override;
  ModuleCosts multiply_adds() const override;
  const SwinOptions& options() const { return options_; }

  // One block on maps of one size.
  class Block : public ResidualBlock {
   public:
    // Number `number` of stage `stage` of the model that the options describe.
    Block(Module& parent, std::string name, const SwinOptions& options, std::size_t stage,
          std::int64_t number);

    // x: (B, height, width, features)
    Tensor forward(const Tensor& x, Mode mode) const;
    void add_costs(ModuleCosts& costs) const;

   private:
    Tensor in_windows(const Tensor& x, Mode mode) const;

    std::int64_t height_, width_;
    Window window_{};
    Tensor regions_;                    // u8, on the CPU; undefined without a shift
    mutable Tensor regions_elsewhere_;  // the same on another device

   public:
    // One of them.
    std::optional<WindowAttention> attn;
    std::optional<CrossShapedAttention> cross;
  };

  // What stands between two stages.
  class Downsample : public Module {
   public:
    Downsample(Module& parent, std::string name, std::int64_t features, const SwinOptions& options);
    Tensor forward(const Tensor& x) const;
    // For so many tokens that come in.
    ModuleCost cost(std::int64_t tokens) const;

    // One of them.
    std::optional<Linear> reduction;
    std::optional<Conv2d> conv;
    TokenNorm norm;
  };

  struct Stage {
    Stage(Module& parent, std::string name) : blocks(parent, std::move(name)) {}
    ModuleList<Block> blocks;
    std::optional<Downsample> downsample;
  };

 private:
  std::vector<std::unique_ptr<Stage>> make_stages();

  SwinOptions options_;

 public:
  PatchEmbed patch_embed;
  TokenNorm patch_norm;
  ModuleList<Module> layers{*this, "layers"};  // which square windows' stages are named after
  std::vector<std::unique_ptr<Stage>> stages = make_stages();
  TokenNorm norm;
  Linear head;
};

// The published settings: swin_t, swin_s, swin_b; cswin_t, cswin_s, cswin_b; lipsformer_swin_t
// (depths 2, 2, 6, 2), lipsformer_swin_t5 (2, 2, 5, 2, as in the first version of the published
// code), lipsformer_swin_s (also _b, _l); lipsformer_cswin_t. The same with _micro are for small
// grey images of 28 x 28. Error for other names.
SwinOptions swin_options(const std::string& name);

}  // namespace lipgrad
