#include <lipgrad/vision/cross_shaped_attention.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

std::vector<Window> windows_of(const MultiHeadAttentionOptions& options, const CrossShape& s) {
  LIPGRAD_CHECK(s.height >= 1 && s.width >= 1 && s.split >= 0,
                "CrossShapedAttention: a map of {} x {} tokens, stripes of {}", s.height, s.width,
                s.split);
  if (s.split == 0) return {{s.height, s.width}};
  LIPGRAD_CHECK(s.height % s.split == 0 && s.width % s.split == 0,
                "CrossShapedAttention: stripes of {} tokens do not divide a map of {} x {}",
                s.split, s.height, s.width);
  LIPGRAD_CHECK(options.heads % 2 == 0, "CrossShapedAttention: {} heads cannot be halved",
                options.heads);
  return {{s.height, s.split}, {s.split, s.width}};
}

}  // namespace

LepeAttention::LepeAttention(Module& parent, std::string name,
                             const MultiHeadAttentionOptions& options, Size2d window,
                             const Initializer& convolution)
    : HeadAttention(parent, std::move(name), options),
      get_v(*this, "get_v", options.dim, options.dim, 3,
            {.padding = 1,
             .groups = options.dim,
             .weight_initializer = convolution,
             .dtype = options.dtype}),
      window_(window) {}

Tensor LepeAttention::forward(const Tensor& qkv, Mode mode) const {
  const ModuleScope scope(path());
  const std::int64_t c = options().dim, tokens = window_.height * window_.width;
  LIPGRAD_CHECK(qkv.defined() && qkv.rank() == 3 && qkv.size(1) == tokens && qkv.size(2) == 3 * c,
                "LepeAttention: qkv must be (windows, {}, {}), got {}", tokens, 3 * c, qkv.shape());
  // nu (w * v + b) = (nu w) * v + nu b, which has fewer numbers to multiply.
  const auto times_nu = [this](const Tensor& p) {
    if (nu)
      return reshape(
          mul(reshape(p, {nu->numel(), p.numel() / nu->numel()}), reshape(*nu, {nu->numel(), 1})),
          p.shape());
    const double fixed = options().attention.nu;
    return fixed == 1 ? p : mul(p, fixed);
  };
  const Tensor v =
      reshape(slice(qkv, 2, 2 * c, 3 * c), {qkv.size(0), window_.height, window_.width, c});
  const Tensor lepe =
      conv2d(v, times_nu(get_v.weight), times_nu(*get_v.bias), {.padding = 1, .groups = c});
  return attend_heads(qkv, {}, {}, mode) + reshape(lepe, {qkv.size(0), tokens, c});
}

CrossShapedAttention::CrossShapedAttention(Module& owner, const MultiHeadAttentionOptions& options,
                                           const CrossShape& shape, const Initializer& convolution)
    : shape_(shape),
      dropout_(options.projection_dropout),
      windows_(windows_of(options, shape)),
      qkv(owner, options),
      attns(owner, "attns"),
      proj(owner, "proj", options.dim, options.dim, projection_options(options)) {
  MultiHeadAttentionOptions part = options;
  const auto parts = static_cast<std::int64_t>(windows_.size());
  part.dim /= parts;
  part.heads /= parts;
  for (const Window& w : windows_) attns.emplace_back(part, Size2d(w.height, w.width), convolution);
}

Tensor CrossShapedAttention::forward(const Tensor& x, Mode mode) const {
  const std::int64_t c = proj.weight.shape()[0];
  const auto parts = static_cast<std::int64_t>(windows_.size());
  LIPGRAD_CHECK(x.defined() && x.rank() == 4 && x.size(1) == shape_.height &&
                    x.size(2) == shape_.width && x.size(3) == c,
                "CrossShapedAttention: x must be (B, {}, {}, {}), got {}", shape_.height,
                shape_.width, c, x.shape());
  // Each part's rows of the weight together: its windows are cut from x, which has a third of the
  // features.
  const auto by_part = [&](const Tensor& rows, std::int64_t inner) {
    return reshape(permute(reshape(rows, {3, parts, c / parts * inner}), {1, 0, 2}),
                   {parts, 3 * c / parts, inner});
  };
  const Tensor weight = by_part(qkv.weight, c);
  Tensor bias = qkv.whole_bias();
  if (bias.defined()) bias = by_part(bias, 1);
  std::vector<Tensor> results;
  for (std::int64_t i = 0; i < parts; ++i) {
    const Window& window = windows_[i];
    Tensor own;
    {
      const ModuleScope scope(qkv.path());
      own = linear(window_partition(x, window),
                   reshape(slice(weight, 0, i, i + 1), {3 * c / parts, c}),
                   bias.defined() ? reshape(slice(bias, 0, i, i + 1), {3 * c / parts}) : Tensor());
    }
    results.push_back(
        window_reverse(attns[i].forward(own, mode), shape_.height, shape_.width, window));
  }
  return dropout(proj.forward(parts == 1 ? results[0] : concat(results, 3)), dropout_, mode);
}

}  // namespace lipgrad
