#include <lipgrad/ops/layers.h>

#include <cmath>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/index.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/residual.h>

namespace lipgrad {
namespace {

Initializer either(const Initializer& given, Initializer usual) { return given ? given : usual; }

std::int64_t checked(const char* layer, const char* what, std::int64_t size) {
  LIPGRAD_CHECK(size >= 1, "{}: {} must be at least 1, got {}", layer, what, size);
  return size;
}

}  // namespace

Linear::Linear(Module& parent, std::string name, std::int64_t in, std::int64_t out,
               const LinearLayerOptions& options)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {checked("Linear", "out", out), checked("Linear", "in", in)},
             either(options.weight_initializer, init::fan_uniform(in)), options.dtype),
      options_{options.activation, options.parameter} {
  if (options.bias)
    bias.emplace(*this, "bias", Shape{out}, either(options.bias_initializer, init::fan_uniform(in)),
                 options.dtype);
}

Tensor Linear::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  return linear(x, weight, bias ? bias->value() : Tensor(), options_);
}

Tensor Linear::forward(const CsrMatrix& x) const {
  const ModuleScope scope(path());
  return linear(x, weight, bias ? bias->value() : Tensor(), options_);
}

LayerNorm::LayerNorm(Module& parent, std::string name, std::int64_t features,
                     const LayerNormOptions& options)
    : Module(parent, std::move(name)),
      features_(checked("LayerNorm", "features", features)),
      eps_(options.eps) {
  LIPGRAD_CHECK(eps_ >= 0, "LayerNorm: eps must not be negative, got {}", eps_);
  if (!options.affine) return;
  weight.emplace(*this, "weight", Shape{features}, init::ones(), options.dtype);
  bias.emplace(*this, "bias", Shape{features}, init::zeros(), options.dtype);
}

Tensor LayerNorm::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rank() >= 1 && x.size(-1) == features_,
                "LayerNorm: made for rows of {} features, got {}", features_, x.shape());
  if (!weight) return layer_norm(x, {}, {}, eps_);
  return layer_norm(x, *weight, *bias, eps_);
}

CenterNorm::CenterNorm(Module& parent, std::string name, std::int64_t features,
                       const CenterNormOptions& options)
    : Module(parent, std::move(name)), features_(features) {
  LIPGRAD_CHECK(features >= 2, "CenterNorm: features must be at least 2, got {}", features);
  if (!options.affine) return;
  weight.emplace(*this, "weight", Shape{features}, init::ones(), options.dtype);
  bias.emplace(*this, "bias", Shape{features}, init::zeros(), options.dtype);
}

Tensor CenterNorm::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rank() >= 1 && x.size(-1) == features_,
                "CenterNorm: made for rows of {} features, got {}", features_, x.shape());
  if (!weight) return center_norm(x);
  return center_norm(x, *weight, *bias);
}

WeightedResidual::WeightedResidual(Module& parent, std::string name, std::int64_t features,
                                   const WeightedResidualOptions& options)
    : Module(parent, std::move(name)),
      alpha(*this, "alpha",
            options.scalar ? Shape{} : Shape{checked("WeightedResidual", "features", features)},
            init::constant(options.initial), options.dtype),
      damped_(options.damped) {
  checked("WeightedResidual", "features", features);
  alpha.set_trainable(options.trainable);
  LIPGRAD_CHECK(std::isfinite(options.initial), "WeightedResidual: initial value {}",
                options.initial);
}

Tensor WeightedResidual::forward(const Tensor& x, const Tensor& f) const {
  const ModuleScope scope(path());
  return damped_ ? damped_residual(x, f, alpha) : weighted_residual(x, f, alpha);
}

double deep_norm_gain(std::int64_t blocks) {
  return std::pow(2 * static_cast<double>(checked("deep_norm_gain", "blocks", blocks)), 0.25);
}
double deep_norm_init_gain(std::int64_t blocks) {
  return std::pow(8 * static_cast<double>(checked("deep_norm_init_gain", "blocks", blocks)), -0.25);
}

Dropout::Dropout(Module& parent, std::string name, double p)
    : Module(parent, std::move(name)), p_(p) {
  LIPGRAD_CHECK(p >= 0 && p <= 1, "Dropout: p must be from 0 to 1, got {}", p);
}

Tensor Dropout::forward(const Tensor& x, Mode mode) const {
  const ModuleScope scope(path());
  return dropout(x, p_, mode);
}

Embedding::Embedding(Module& parent, std::string name, std::int64_t count, std::int64_t features,
                     const EmbeddingOptions& options)
    : Module(parent, std::move(name)),
      weight(*this, "weight",
             {checked("Embedding", "count", count), checked("Embedding", "features", features)},
             either(options.initializer, init::normal()), options.dtype) {}

Tensor Embedding::forward(const Tensor& index) const {
  const ModuleScope scope(path());
  return embedding(weight, index);
}

}  // namespace lipgrad
