#include <lipgrad/vision/multi_head_attention.h>

#include <cmath>
#include <limits>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
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

MultiHeadAttention::MultiHeadAttention(Module& parent, std::string name,
                                       const MultiHeadAttentionOptions& options)
    : Module(parent, std::move(name)),
      qkv(*this, "qkv", checked(options).dim, 3 * options.dim,
          {.bias = options.qkv_bias == QkvBias::all,
           .weight_initializer = options.weight_initializer,
           .bias_initializer = options.bias_initializer,
           .dtype = options.dtype}),
      proj(*this, "proj", options.dim, options.dim,
           {.weight_initializer = options.weight_initializer,
            .bias_initializer = options.bias_initializer,
            .dtype = options.dtype}),
      options_(options) {
  options_.attention.heads = options.heads;
  const std::int64_t features = options.dim / options.heads;
  if (options.qkv_bias == QkvBias::queries_and_values) {
    const Initializer start =
        options.bias_initializer ? options.bias_initializer : init::fan_uniform(options.dim);
    q_bias.emplace(*this, "q_bias", Shape{options.dim}, start, options.dtype);
    v_bias.emplace(*this, "v_bias", Shape{options.dim}, start, options.dtype);
  }
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
               init::constant(options.attention.nu), options.dtype);
    options_.attention.nu = 1;
  }
  if (options.qk_norm) {
    q_norm.emplace(*this, "q_norm", Shape{features}, init::ones(), options.dtype);
    k_norm.emplace(*this, "k_norm", Shape{features}, init::ones(), options.dtype);
  }
}

Tensor MultiHeadAttention::attend(const Tensor& x, const Tensor& bias, const Tensor& regions,
                                  Mode mode) const {
  const ModuleScope scope(path());
  const std::int64_t dim = options_.dim, heads = options_.heads;
  LIPGRAD_CHECK(x.defined() && x.rank() == 3 && x.size(2) == dim,
                "MultiHeadAttention: x must be (B, T, {}), got {}", dim, x.shape());
  Tensor projected = qkv.forward(x);
  if (q_bias)
    projected = add(
        projected,
        concat({q_bias->value(), zeros({dim}, q_bias->dtype(), x.device()), v_bias->value()}, 0));
  DenseAttentionTerms terms{.bias = bias, .regions = regions};
  if (tau) terms.tau = *tau;
  if (nu) terms.nu = *nu;
  if (logit_scale)
    terms.tau = exp(clamp(*logit_scale, -std::numeric_limits<double>::infinity(),
                          std::log(*options_.tau_ceiling)));
  Tensor y;
  if (q_norm) {
    const Shape by_head{x.size(0), x.size(1), heads, dim / heads};
    const auto part = split(projected, {dim, dim, dim}, 2);
    y = dense_attention(layer_norm(reshape(part[0], by_head), *q_norm),
                        layer_norm(reshape(part[1], by_head), *k_norm), reshape(part[2], by_head),
                        options_.attention, terms, mode);
  } else {
    y = dense_attention(projected, options_.attention, terms, mode);
  }
  return dropout(proj.forward(y), options_.projection_dropout, mode);
}

}  // namespace lipgrad
