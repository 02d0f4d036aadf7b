#pragma once

#include <cstdint>
#include <string>

#include <lipgrad/models/vision_block.h>
#include <lipgrad/vision/multi_head_attention.h>
#include <lipgrad/vision/patches.h>

namespace lipgrad {

struct VisionTransformerOptions {
  std::int64_t image_height = 224, image_width = 224, channels = 3, classes = 1000;
  std::int64_t patch = 16;
  std::int64_t width = 192, depth = 12, heads = 3;
  MultiHeadAttentionOptions attention = {};  // but sizes, initialisers, dtype, dropout after it
  BlockOptions block = {.norm_eps = 1e-6};   // but `blocks`, which is the depth; no convolutions
  double drop_path = 0;                      // of the last block, rising evenly from 0 at the first
  bool checkpoint_blocks = false;
};

// The vision transformer (Dosovitskiy et al., ICLR 2021) as DeiT has it (Touvron et al., ICML
// 2021):
//
//   x = (class token, patches of the image, projected) + positions
//   blocks: ResidualBlock with attention among all tokens
//   logits = linear(the class token of norm(x))
//
// Parameters have the names and shapes of the published checkpoints. Error for sizes that do not
// divide.
class VisionTransformer : public ImageClassifier {
 public:
  explicit VisionTransformer(const VisionTransformerOptions& options);

  Tensor forward(const Tensor& images, Mode mode) const override;
  ModuleCosts multiply_adds() const override;
  const VisionTransformerOptions& options() const { return options_; }

  class Block : public ResidualBlock {
   public:
    Block(Module& parent, std::string name, const VisionTransformerOptions& options,
          double drop_path);
    Tensor forward(const Tensor& x, Mode mode) const;
    void add_costs(std::int64_t tokens, ModuleCosts& costs) const;

    MultiHeadAttention attn;
  };

 private:
  VisionTransformerOptions options_;

 public:
  Parameter cls_token, pos_embed;  // (1, 1, width), (1, 1 + patches, width)
  PatchEmbed patch_embed;
  ModuleList<Block> blocks{*this, "blocks"};
  TokenNorm norm;
  Linear head;
};

// The published settings: vit_ti, vit_s, vit_b, of 16 x 16 patches; vit_micro is for small grey
// images of 28 x 28. Error for other names.
VisionTransformerOptions vit_options(const std::string& name);

}  // namespace lipgrad
