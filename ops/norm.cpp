#include <lipgrad/ops/norm.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/kernels/norm.h>

namespace lipgrad {
namespace {

std::int64_t columns(const char* op, const Tensor& x,
                     std::initializer_list<const Tensor*> vectors) {
  check_same_kind(op, {&x});
  LIPGRAD_CHECK(x.rank() >= 1 && x.size(-1) > 0,
                "{}: expects at least one element in the last dimension, got {}", op, x.shape());
  const std::int64_t cols = x.size(-1);
  for (const Tensor* v : vectors) {
    if (!v->defined()) continue;
    check_same_kind(op, {&x, v});
    LIPGRAD_CHECK(v->shape() == Shape({cols}), "{}: weight or bias {} does not fit the rows of {}",
                  op, v->shape(), x.shape());
  }
  return cols;
}

// The gradients of both norms; a null mean stands for rms_norm.
void backward_of(const char* op, Ctx& ctx, const Tensor& gy, Grads gx, const Tensor& mean,
                 const Tensor& rstd) {
  const Tensor &x = ctx.saved(0), &weight = ctx.saved(1);
  const std::int64_t cols = x.size(-1), rows = x.numel() / cols;
  Tensor g[3];
  for (std::size_t i = 0; i < gx.size(); ++i)
    if (ctx.needs_grad(i)) g[i] = i == 0 ? empty_like(x) : empty({cols}, x.dtype(), x.device());
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), norm_backward, rows, cols, x.data<T>(), data_or_null<T>(weight),
                   data_or_null<T>(mean), rstd.data<T>(), gy.data<T>(),
                   mutable_data_or_null<T>(g[0]), mutable_data_or_null<T>(g[1]),
                   mutable_data_or_null<T>(g[2]));
  });
  for (std::size_t i = 0; i < gx.size(); ++i) gx[i] = std::move(g[i]);
}

struct LayerNorm {  // x, weight, bias
  static constexpr auto name = "layer_norm";
  double eps;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::int64_t cols = columns(name, x, {&in[1], &in[2]}), rows = x.numel() / cols;
    Tensor y = empty_like(x), mean = empty({rows}, x.dtype(), x.device()), rstd = empty_like(mean);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), layer_norm, rows, cols, eps, x.data<T>(), data_or_null<T>(in[1]),
                     data_or_null<T>(in[2]), y.mutable_data<T>(), mean.mutable_data<T>(),
                     rstd.mutable_data<T>());
    });
    ctx.save(x);
    ctx.save(in[1]);
    ctx.save(mean);
    ctx.save(rstd);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    backward_of(name, ctx, gy, gx, ctx.saved(2), ctx.saved(3));
  }
};

struct RmsNorm {  // x, weight
  static constexpr auto name = "rms_norm";
  double eps;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::int64_t cols = columns(name, x, {&in[1]}), rows = x.numel() / cols;
    Tensor y = empty_like(x), rstd = empty({rows}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), rms_norm, rows, cols, eps, x.data<T>(), data_or_null<T>(in[1]),
                     y.mutable_data<T>(), rstd.mutable_data<T>());
    });
    ctx.save(x);
    ctx.save(in[1]);
    ctx.save(rstd);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    backward_of(name, ctx, gy, gx, Tensor(), ctx.saved(2));
  }
};

struct CenterNorm {  // x, weight, bias
  static constexpr auto name = "center_norm";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::int64_t cols = columns(name, x, {&in[1], &in[2]}), rows = x.numel() / cols;
    LIPGRAD_CHECK(cols > 1, "center_norm: rows of one element have no deviation, got {}",
                  x.shape());
    Tensor y = empty_like(x), mean = empty({rows}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), center_norm, rows, cols, x.data<T>(), data_or_null<T>(in[1]),
                     data_or_null<T>(in[2]), y.mutable_data<T>(), mean.mutable_data<T>());
    });
    // The map is linear: x is kept for the weight's gradient alone.
    const bool of_weight = ctx.needs_grad(1);
    ctx.save(in[1]);
    ctx.save(of_weight ? x : Tensor());
    ctx.save(of_weight ? mean : Tensor());
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &weight = ctx.saved(0), &x = ctx.saved(1), &mean = ctx.saved(2);
    const std::int64_t cols = gy.size(-1), rows = gy.numel() / cols;
    Tensor g[3];
    for (std::size_t i = 0; i < 3; ++i)
      if (ctx.needs_grad(i))
        g[i] = i == 0 ? empty_like(gy) : empty({cols}, gy.dtype(), gy.device());
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), center_norm_backward, rows, cols, data_or_null<T>(x),
                     data_or_null<T>(weight), data_or_null<T>(mean), gy.data<T>(),
                     mutable_data_or_null<T>(g[0]), mutable_data_or_null<T>(g[1]),
                     mutable_data_or_null<T>(g[2]));
    });
    for (std::size_t i = 0; i < 3; ++i) gx[i] = std::move(g[i]);
  }
};

struct L2Normalize {
  static constexpr auto name = "l2_normalize";
  int dim;
  double eps;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::int64_t outer = x.shape().leading(dim), n = x.shape()[dim],
                       inner = x.shape().trailing(dim + 1);
    Tensor y = empty_like(x), norm = empty({outer, inner}, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), l2_normalize, outer, n, inner, eps, x.data<T>(),
                     y.mutable_data<T>(), norm.mutable_data<T>());
    });
    ctx.save(y);
    ctx.save(norm);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &y = ctx.saved(0), &norm = ctx.saved(1);
    const std::int64_t outer = norm.size(0), n = y.shape()[dim], inner = norm.size(1);
    Tensor g = empty_like(y);
    visit_float(name, y.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(y.device(), l2_normalize_backward, outer, n, inner, eps, y.data<T>(),
                     norm.data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return apply(LayerNorm{eps}, x, weight, bias);
}
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return apply(RmsNorm{eps}, x, weight);
}
Tensor center_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return apply(CenterNorm{}, x, weight, bias);
}
Tensor l2_normalize(const Tensor& x, int dim, double eps) {
  check_same_kind(L2Normalize::name, {&x});
  LIPGRAD_CHECK(eps > 0, "l2_normalize: eps must be positive, got {}", eps);
  return apply(L2Normalize{x.shape().normalize_dim(dim, L2Normalize::name), eps}, x);
}

}  // namespace lipgrad
