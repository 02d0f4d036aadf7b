#include <lipgrad/vision/multi_head_attention.h>

#include <cmath>
#include <limits>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

const MultiHeadAttentionOptions& checked(const MultiHeadAttentionOptions& o) {
  constexpr auto layer = "MultiHeadAttention";
  LIPGRAD_CHECK(o.heads >= 1 && o.dim >= 1 && o.dim % o.heads == 0,
                "{}: dim must be a multiple of heads, both at least 1, got {} and {}", layer, o.dim,
                o.heads);
  LIPGRAD_CHECK(o.attention.heads == 0 || o.attention.heads == o.heads,
                "{}: the options of attention say {} heads, those of the layer {}", layer,
                o.attention.heads, o.heads);
  LIPGRAD_CHECK(o.projection_dropout >= 0 && o.projection_dropout <= 1,
                "{}: projection_dropout must be from 0 to 1, got {}", layer, o.projection_dropout);
  if (o.tau_ceiling) {
    LIPGRAD_CHECK(o.learn_tau != Learned::no, "{}: tau_ceiling is of a learned tau", layer);
    const double start = o.attention.tau.value_or(1);
    LIPGRAD_CHECK(start > 0 && start <= *o.tau_ceiling && std::isfinite(*o.tau_ceiling),
                  "{}: tau must start above 0 and at most at its ceiling {}, got {}", layer,
                  *o.tau_ceiling, start);
  }
  return o;
}

Shape numbers(const MultiHeadAttentionOptions& o, Learned learned) {
  return {learned == Learned::one ? 1 : o.heads};
}

}  // namespace

LinearLayerOptions projection_options(const MultiHeadAttentionOptions& options) {
  return {.weight_initializer = options.weight_initializer,
          .bias_initializer = options.bias_initializer,
          .dtype = options.dtype};
}

QkvLinear::QkvLinear(Module& parent, const MultiHeadAttentionOptions& options)
    : Linear(parent, "qkv", checked(options).dim, 3 * options.dim,
             {.bias = options.qkv_bias == QkvBias::all,
              .weight_initializer = options.weight_initializer,
              .bias_initializer = options.bias_initializer,
              .dtype = options.dtype}) {
  if (options.qkv_bias != QkvBias::queries_and_values) return;
  const Initializer start =
      options.bias_initializer ? options.bias_initializer : init::fan_uniform(options.dim);
  q_bias.emplace(parent, "q_bias", Shape{options.dim}, start, options.dtype);
  v_bias.emplace(parent, "v_bias", Shape{options.dim}, start, options.dtype);
}

Tensor QkvLinear::whole_bias() const {
  if (bias) return *bias;
  if (!q_bias) return {};
  const Tensor& q = *q_bias;
  return concat({q, zeros(q.shape(), q.dtype(), q.device()), v_bias->value()}, 0);
}

Tensor QkvLinear::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  return linear(x, weight, whole_bias());
}

HeadAttention::HeadAttention(Module& parent, std::string name,
                             const MultiHeadAttentionOptions& options)
    : Module(parent, std::move(name)), options_(checked(options)) {
  options_.attention.heads = options.heads;
  if (options.nu_over_heads) options_.attention.nu /= std::sqrt(static_cast<double>(options.heads));
  const std::int64_t features = options.dim / options.heads;
  if (options.learn_tau != Learned::no) {
    const double start =
        options.attention.tau.value_or(options.attention.score == AttentionScore::cosine
                                           ? 1
                                           : 1 / std::sqrt(static_cast<double>(features)));
    options_.attention.tau.reset();  // the tensor's place
    if (options.tau_ceiling) {
      logit_scale.emplace(*this, "logit_scale", numbers(options, options.learn_tau),
                          init::constant(std::log(start)), options.dtype);
    } else {
      tau.emplace(*this, "tau", numbers(options, options.learn_tau), init::constant(start),
                  options.dtype);
    }
  }
  if (options.learn_nu != Learned::no) {
    nu.emplace(*this, "nu", numbers(options, options.learn_nu),
               init::constant(options_.attention.nu), options.dtype);
    options_.attention.nu = 1;
  }
  if (options.qk_norm) {
    q_norm.emplace(*this, "q_norm", Shape{features}, init::ones(), options.dtype);
    k_norm.emplace(*this, "k_norm", Shape{features}, init::ones(), options.dtype);
  }
}

Tensor HeadAttention::attend_heads(const Tensor& qkv, const Tensor& bias, const Tensor& regions,
                                   Mode mode) const {
  const std::int64_t dim = options_.dim, heads = options_.heads;
  DenseAttentionTerms terms{.bias = bias, .regions = regions};
  if (tau) terms.tau = *tau;
  if (nu) terms.nu = *nu;
  if (logit_scale)
    terms.tau = exp(clamp(*logit_scale, -std::numeric_limits<double>::infinity(),
                          std::log(*options_.tau_ceiling)));
  if (!q_norm) return dense_attention(qkv, options_.attention, terms, mode);
  const Shape by_head{qkv.size(0), qkv.size(1), heads, dim / heads};
  const auto part = split(qkv, {dim, dim, dim}, 2);
  return dense_attention(layer_norm(reshape(part[0], by_head), *q_norm),
                         layer_norm(reshape(part[1], by_head), *k_norm), reshape(part[2], by_head),
                         options_.attention, terms, mode);
}

MultiHeadAttention::MultiHeadAttention(Module& parent, std::string name,
                                       const MultiHeadAttentionOptions& options)
    : HeadAttention(parent, std::move(name), options),
      qkv(*this, options),
      proj(*this, "proj", options.dim, options.dim, projection_options(options)) {}

Tensor MultiHeadAttention::attend(const Tensor& x, const Tensor& bias, const Tensor& regions,
                                  Mode mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.defined() && x.rank() == 3 && x.size(2) == options().dim,
                "MultiHeadAttention: x must be (B, T, {}), got {}", options().dim, x.shape());
  return dropout(proj.forward(attend_heads(qkv.forward(x), bias, regions, mode)),
                 options().projection_dropout, mode);
}

}  // namespace lipgrad
