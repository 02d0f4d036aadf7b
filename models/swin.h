#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lipgrad/models/vision_block.h>
#include <lipgrad/vision/patches.h>
#include <lipgrad/vision/window_attention.h>
#include <lipgrad/vision/windows.h>

namespace lipgrad {

struct SwinOptions {
  std::int64_t image_height = 224, image_width = 224, channels = 3, classes = 1000;
  std::int64_t patch = 4;
  std::int64_t width = 96;  // features of the first stage; twice as many in each that follows
  std::vector<std::int64_t> depths = {2, 2, 6, 2};  // blocks of each stage
  std::vector<std::int64_t> heads = {3, 6, 12, 24};
  std::int64_t window = 7;  // the whole map where that is no larger
  bool shift = true;        // every second block's windows are shifted by half a window
  MultiHeadAttentionOptions attention = {};  // but sizes, initialisers, dtype, dropout after it
  PositionBias position = PositionBias::table;
  BlockOptions block = {};  // but `blocks`, which depths give
  double drop_path = 0;     // of the last block, rising evenly from 0 at the first
  // Each block keeps only what enters it in training and is computed again in backward.
  bool checkpoint_blocks = false;
};

// Vision transformers on windows, in stages of maps of half the size and twice the features: Swin
// (Liu et al., ICCV 2021) and LipsFormer-Swin (Qi et al., LipsFormer, ICLR 2023) are settings of
// it.
//
//   x = norm(patches of the image, projected)          "patch_embed"
//   for each stage: blocks; all but the last: 2 x 2 patches merged, norm, linear   "layers"
//   logits = linear(mean over tokens of norm(x))       "norm", "head"
//
// A block is ResidualBlock with attention in windows. Parameters have the names and shapes of the
// published checkpoints. Error for sizes that do not divide.
class Swin : public ImageClassifier {
 public:
  explicit Swin(const SwinOptions& options);

  Tensor forward(const Tensor& images, Mode mode) const override;
  ModuleCosts multiply_adds() const override;
  const SwinOptions& options() const { return options_; }

  // One block on maps of one size.
  class Block : public ResidualBlock {
   public:
    // shift: of the window, 0 or above.
    Block(Module& parent, std::string name, const SwinOptions& options, std::int64_t features,
          std::int64_t heads, std::int64_t height, std::int64_t width, bool shift,
          double drop_path);

    // x: (B, height, width, features)
    Tensor forward(const Tensor& x, Mode mode) const;
    void add_costs(ModuleCosts& costs) const;

   private:
    std::int64_t height_, width_;
    Window window_;
    Tensor regions_;                    // u8, on the CPU; undefined without a shift
    mutable Tensor regions_elsewhere_;  // the same on another device

   public:
    WindowAttention attn;
  };

  struct Downsample : Module {
    Downsample(Module& parent, std::string name, std::int64_t features,
               const BlockOptions& options);
    Tensor forward(const Tensor& x) const;

    TokenNorm norm;
    Linear reduction;
  };

  struct Stage : Module {
    using Module::Module;
    ModuleList<Block> blocks{*this, "blocks"};
    std::optional<Downsample> downsample;
  };

 private:
  SwinOptions options_;

 public:
  PatchEmbed patch_embed;
  TokenNorm patch_norm;  // "patch_embed.norm"
  ModuleList<Stage> layers{*this, "layers"};
  TokenNorm norm;
  Linear head;
};

// The published settings: swin_t, swin_s, swin_b; lipsformer_swin_t (depths 2, 2, 6, 2),
// lipsformer_swin_t5 (2, 2, 5, 2, as in the first version of the published code), lipsformer_swin_s
// (also _b, _l). swin_micro and lipsformer_swin_micro are for small grey images of 28 x 28. Error
// for other names.
SwinOptions swin_options(const std::string& name);

}  // namespace lipgrad
