#include <lipgrad/models/vision_block.h>

#include <algorithm>
#include <cmath>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/residual.h>

namespace lipgrad {
namespace {

double initial_scale(const BlockOptions& options) {
  if (options.shortcut_initial) return *options.shortcut_initial;
  const std::int64_t blocks = options.blocks;
  if (options.shortcut == ShortcutKind::weighted) return 1 / static_cast<double>(blocks);
  if (options.shortcut == ShortcutKind::rezero) return 0;
  return blocks <= 18 ? 0.1 : blocks <= 24 ? 1e-5 : 1e-6;
}

bool is_spectral(const BlockOptions& options) {
  return options.init == VisionInit::spectral || options.init == VisionInit::spectral_conv;
}

LinearLayerOptions linear_options(const BlockOptions& options, Activation activation) {
  return {.activation = activation,
          .weight_initializer = options.init == VisionInit::deepnorm
                                    ? init::xavier_normal(deep_norm_init_gain(options.blocks))
                                    : linear_initializer(options),
          .bias_initializer = init::zeros(),
          .dtype = options.dtype};
}

std::int64_t hidden_of(std::int64_t features, double ratio) {
  LIPGRAD_CHECK(ratio > 0 && ratio <= 1024, "Mlp: ratio {} is not above 0 and at most 1024", ratio);
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(static_cast<double>(features) * ratio));
}

}  // namespace

Initializer linear_initializer(const BlockOptions& options) {
  if (is_spectral(options)) return init::spectral();
  if (options.init == VisionInit::deepnorm) return init::xavier_normal();
  return init::normal(0, 0.02);
}

Initializer conv_initializer(const BlockOptions& options) {
  return is_spectral(options) ? init::spectral() : Initializer();
}

Initializer depthwise_initializer(const BlockOptions& options) {
  if (options.init == VisionInit::spectral_conv) return init::spectral_depthwise();
  return conv_initializer(options);
}

Initializer attention_initializer(const BlockOptions& options) {
  if (options.init != VisionInit::deepnorm) return linear_initializer(options);
  return [gain = deep_norm_init_gain(options.blocks)](Tensor& weight, Generator& rng) {
    const std::int64_t columns = weight.size(1), parts = weight.size(0) / columns;
    for (std::int64_t part = 0; part < parts; ++part) {
      Tensor square = weight.alias({columns, columns}, part * columns * columns);
      init::xavier_normal(part + 1 < parts ? 1 : gain)(square, rng);
    }
  };
}

TokenNorm::TokenNorm(Module& parent, std::string name, std::int64_t features,
                     const BlockOptions& options)
    : Module(parent, std::move(name)), kind_(options.norm), eps_(options.norm_eps) {
  if (kind_ == TokenNormKind::none) return;
  weight.emplace(*this, "weight", Shape{features}, init::ones(), options.dtype);
  bias.emplace(*this, "bias", Shape{features}, init::zeros(), options.dtype);
}

Tensor TokenNorm::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  if (kind_ == TokenNormKind::layer) return layer_norm(x, *weight, *bias, eps_);
  if (kind_ == TokenNormKind::center) return center_norm(x, *weight, *bias);
  return x;
}

Shortcut::Shortcut(Module& parent, std::string name, std::int64_t features,
                   const BlockOptions& options)
    : Module(parent, std::move(name)) {
  if (options.shortcut == ShortcutKind::deepnorm) gain_ = deep_norm_gain(options.blocks);
  if (options.shortcut == ShortcutKind::plain || options.shortcut == ShortcutKind::deepnorm) return;
  const Shape shape = options.shortcut == ShortcutKind::rezero ? Shape{} : Shape{features};
  scale.emplace(*this, "scale", shape, init::constant(initial_scale(options)), options.dtype);
}

Tensor Shortcut::forward(const Tensor& x, const Tensor& f) const {
  const ModuleScope scope(path());
  if (scale) return weighted_residual(x, f, *scale);
  if (gain_ == 1) return x + f;
  return weighted_residual(f, x, full({}, gain_, x.dtype(), x.device()));
}

Mlp::Mlp(Module& parent, std::string name, std::int64_t features, const BlockOptions& options)
    : Module(parent, std::move(name)),
      hidden(hidden_of(features, options.mlp_ratio)),
      fc1(*this, "fc1", features, hidden, linear_options(options, Activation::gelu)),
      fc2(*this, "fc2", hidden, features, linear_options(options, Activation::identity)),
      dropout_(options.dropout) {}

Tensor Mlp::forward(const Tensor& x, Mode mode) const {
  return dropout(fc2.forward(dropout(fc1.forward(x), dropout_, mode)), dropout_, mode);
}

ResidualBlock::ResidualBlock(Module& parent, std::string name, std::int64_t features,
                             const BlockOptions& options, double drop_path)
    : Module(parent, std::move(name)),
      features_(features),
      kernel_(options.kernel),
      place_(options.place),
      attention_norm_(options.attention_norm),
      drop_path_(drop_path),
      norm1(*this, "norm1", features, options),
      norm2(*this, "norm2", features, options),
      mlp(*this, "mlp", features, options),
      alpha1(*this, "alpha1", features, options),
      alpha2(*this, "alpha2", features, options) {
  LIPGRAD_CHECK(drop_path >= 0 && drop_path < 1, "block: drop path {} is not in [0, 1)", drop_path);
  if (!options.convolutions) return;
  LIPGRAD_CHECK(kernel_ >= 1 && kernel_ % 2 == 1, "block: kernel {} must be odd", kernel_);
  dwconv_layers.emplace(*this, "dwconv_layers");
  scale_layers.emplace(*this, "scale_layers");
  for (int i = 0; i < 2; ++i) {
    dwconv_layers->emplace_back(
        features, features, Size2d(kernel_),
        Conv2dLayerOptions{.padding = kernel_ / 2,
                           .groups = features,
                           .weight_initializer = depthwise_initializer(options),
                           .dtype = options.dtype});
    scale_layers->emplace_back(features, options);
  }
  nin.emplace(
      *this, "nin", features, features, Size2d(1),
      Conv2dLayerOptions{.weight_initializer = conv_initializer(options), .dtype = options.dtype});
}

template <class F>
Tensor ResidualBlock::join(const Tensor& x, F&& branch, const TokenNorm* norm,
                           const Shortcut& shortcut, Mode mode) const {
  const auto normed = [&](const Tensor& t, NormPlace place) {
    return norm && place == place_ ? norm->forward(t) : t;
  };
  const Tensor f = normed(branch(normed(x, NormPlace::pre)), NormPlace::res_post);
  return normed(shortcut.forward(x, drop_path(f, drop_path_, mode)), NormPlace::post);
}

Tensor ResidualBlock::run(const Tensor& input,
                          const std::function<Tensor(const Tensor&)>& attention, Mode mode) const {
  Tensor x = input;
  if (nin) {
    const ModuleList<Conv2d>& conv = *dwconv_layers;
    Tensor f = gelu(nin->forward(gelu(conv[0].forward(x))));
    x = (*scale_layers)[0].forward(x, drop_path(f, drop_path_, mode));
    f = gelu(conv[1].forward(x));
    x = (*scale_layers)[1].forward(x, drop_path(f, drop_path_, mode));
  }
  x = join(x, attention, attention_norm_ ? &norm1 : nullptr, alpha1, mode);
  return join(
      x, [&](const Tensor& t) { return mlp.forward(t, mode); }, &norm2, alpha2, mode);
}

void ResidualBlock::add_costs(std::int64_t tokens, ModuleCosts& costs) const {
  const auto add = [&](const Module& module, std::int64_t each) {
    costs.push_back({module.path(), tokens * each});
  };
  if (nin) {
    add((*dwconv_layers)[0], features_ * kernel_ * kernel_);
    add((*dwconv_layers)[1], features_ * kernel_ * kernel_);
    add(*nin, features_ * features_);
  }
  add(mlp.fc1, features_ * mlp.hidden);
  add(mlp.fc2, features_ * mlp.hidden);
}

std::vector<OptimizerGroup> vision_groups(double weight_decay) {
  return {{.contains =
               [](const std::string& path, const Parameter& parameter) {
                 const auto ends = [&](const char* name) {
                   return path == name || path.ends_with(std::string(".") + name);
                 };
                 return parameter.shape().rank() <= 1 || ends("relative_position_bias_table") ||
                        ends("pos_embed") || ends("cls_token");
               },
           .weight_decay = weight_decay}};
}

}  // namespace lipgrad
