#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/optimizer.h>
#include <lipgrad/core/random.h>
#include <lipgrad/ops/conv2d.h>
#include <lipgrad/ops/layers.h>

// What the vision models share: norms of tokens, shortcuts, the block that joins attention and MLP
// to what comes in. Each part is an option of its own.
namespace lipgrad {

enum class TokenNormKind : std::uint8_t {
  none,
  layer,   // layer_norm()
  center,  // center_norm(): Qi et al., LipsFormer, ICLR 2023
};

// Where a branch f has its norm.
enum class NormPlace : std::uint8_t {
  pre,       // x + f(norm(x))
  post,      // norm(x + f(x))
  res_post,  // x + norm(f(x)): Liu et al., Swin V2, CVPR 2022
};

// How a branch's result f joins x.
enum class ShortcutKind : std::uint8_t {
  plain,        // x + f
  weighted,     // x + alpha f, alpha learned for each feature, from 1 / blocks (LipsFormer)
  layer_scale,  // the same from 0.1 up to 18 blocks, 1e-5 up to 24, else 1e-6 (Touvron et al.,
                // CaiT, ICCV 2021)
  rezero,       // x + a f, a learned scalar, from 0 (Bachlechner et al., UAI 2021)
  deepnorm,     // (2 blocks)^(1/4) x + f (Wang et al., DeepNet, arXiv:2203.00555)
};

// How weights begin. Biases of linear layers are 0; those of convolutions uniform in
// +- 1 / sqrt(fan in), which is how convolutions without a word here begin as well.
enum class VisionInit : std::uint8_t {
  normal,         // of linear layers normal, deviation 0.02
  spectral,       // xavier_normal over its largest singular value, of convolutions too (LipsFormer:
                  // kernels as matrices (out, rest))
  spectral_conv,  // the same, depth-wise convolutions over their true norm
  deepnorm,       // of linear layers xavier_normal, of gain (8 blocks)^(-1/4) but for query and key
};

struct BlockOptions {
  std::int64_t blocks = 12;  // of the whole network, for the initial values above
  TokenNormKind norm = TokenNormKind::layer;
  NormPlace place = NormPlace::pre;
  // Not: attention's norm has parameters, as in LipsFormer-CSwin's published code, but norms
  // nothing.
  bool attention_norm = true;
  double norm_eps = 1e-5;  // of layer
  ShortcutKind shortcut = ShortcutKind::plain;
  std::optional<double> shortcut_initial = {};  // of alpha or a; unset: as said there
  // Two branches before attention, without a norm: gelu(W gelu(D x)) and gelu(D x), D depth-wise
  // convolutions of `kernel` x `kernel` and W a 1 x 1 convolution (LipsFormer).
  bool convolutions = false;
  std::int64_t kernel = 7;
  double mlp_ratio = 4;
  VisionInit init = VisionInit::normal;
  double dropout = 0;  // of what attention, activation and MLP give
  DType dtype = f32;
};

// The initialisers that the options ask for; unset: the layer's own.
Initializer linear_initializer(const BlockOptions& options);
Initializer conv_initializer(const BlockOptions& options);
Initializer depthwise_initializer(const BlockOptions& options);
// Of weights (C, C) and those of query, key and value together, (3 C, C).
Initializer attention_initializer(const BlockOptions& options);

// A norm of tokens (..., features) with weight and bias (features), if there is one.
class TokenNorm : public Module {
 public:
  TokenNorm(Module& parent, std::string name, std::int64_t features, const BlockOptions& options);
  Tensor forward(const Tensor& x) const;

  std::optional<Parameter> weight, bias;

 private:
  TokenNormKind kind_;
  double eps_;
};

// x joined with f, both (..., features). Parameter, where one is learned: scale (features) or ().
class Shortcut : public Module {
 public:
  Shortcut(Module& parent, std::string name, std::int64_t features, const BlockOptions& options);
  Tensor forward(const Tensor& x, const Tensor& f) const;

  std::optional<Parameter> scale;

 private:
  double gain_ = 1;  // of x
};

// fc2(gelu(fc1 x)) with dropout after each.
class Mlp : public Module {
 public:
  Mlp(Module& parent, std::string name, std::int64_t features, const BlockOptions& options);
  Tensor forward(const Tensor& x, Mode mode) const;

  std::int64_t hidden;
  Linear fc1, fc2;

 private:
  double dropout_;
};

// Multiply-adds of one module for one image: of matrix products and convolutions, padding counted.
struct ModuleCost {
  std::string path;
  std::int64_t multiply_adds;
};
using ModuleCosts = std::vector<ModuleCost>;

// Everything of a block but its attention, which derived classes bring. Names are those of the
// published checkpoints of Swin, CSwin and LipsFormer.
class ResidualBlock : public Module {
 public:
  // drop_path: the probability with which a branch is left out of an image.
  ResidualBlock(Module& parent, std::string name, std::int64_t features,
                const BlockOptions& options, double drop_path);

 protected:
  // x: (B, T, C), or (B, H, W, C), which convolutions need; attention(x) has the shape of x.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& attention,
             Mode mode) const;
  // Of everything but attention, for so many tokens.
  void add_costs(std::int64_t tokens, ModuleCosts& costs) const;
  std::int64_t features() const { return features_; }

 private:
  // norm: null for none.
  template <class F>
  Tensor join(const Tensor& x, F&& branch, const TokenNorm* norm, const Shortcut& shortcut,
              Mode mode) const;

  std::int64_t features_, kernel_;
  NormPlace place_;
  bool attention_norm_;
  double drop_path_;

 public:
  std::optional<ModuleList<Conv2d>> dwconv_layers;
  std::optional<ModuleList<Shortcut>> scale_layers;
  std::optional<Conv2d> nin;
  TokenNorm norm1, norm2;
  Mlp mlp;
  Shortcut alpha1, alpha2;
};

// What `lipgrad` and the task below need of a model of images.
class ImageClassifier : public Module {
 public:
  // Logits (B, classes) of images (B, channels, height, width).
  virtual Tensor forward(const Tensor& images, Mode mode) const = 0;
  // By module, in order, for one image.
  virtual ModuleCosts multiply_adds() const = 0;
};

// The groups of LipsFormer's recipe: this weight decay for parameters that are vectors or scalars
// and for tables of positions (the published 0.0005, where all others have 0.05; usually 0).
std::vector<OptimizerGroup> vision_groups(double weight_decay);

}  // namespace lipgrad
