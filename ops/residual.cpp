#include <lipgrad/ops/residual.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/kernels/residual.h>

namespace lipgrad {
namespace {

// Rows and columns that the kernels see: a scalar alpha has no rows to follow.
struct Extent {
  std::int64_t rows, cols;
};

Extent extent(const Tensor& x, const Tensor& alpha) {
  if (alpha.rank() == 0) return {1, x.numel()};
  const std::int64_t cols = x.size(-1);
  return {cols == 0 ? 0 : x.numel() / cols, cols};
}

void check(const char* op, const Tensor& x, const Tensor& f, const Tensor& alpha) {
  check_same_kind(op, {&x, &f, &alpha});
  LIPGRAD_CHECK(x.shape() == f.shape(), "{}: x {} and f {} differ", op, x.shape(), f.shape());
  LIPGRAD_CHECK(
      alpha.rank() == 0 || (x.rank() >= 1 && alpha.shape() == Shape({x.size(-1)})),
      "{}: alpha {} is neither a scalar nor one value for each element of the last dimension of {}",
      op, alpha.shape(), x.shape());
}

template <bool Damped>
struct Residual {  // x, f, alpha
  static constexpr auto name = Damped ? "damped_residual" : "weighted_residual";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &f = in[1], &alpha = in[2];
    check(name, x, f, alpha);
    const Extent n = extent(x, alpha);
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), residual, Damped, n.rows, n.cols, alpha.rank() == 0, x.data<T>(),
                     f.data<T>(), alpha.data<T>(), y.mutable_data<T>());
    });
    const bool of_alpha = ctx.needs_grad(2);
    ctx.save(alpha);
    ctx.save(of_alpha ? f : Tensor());
    ctx.save(of_alpha && Damped ? x : Tensor());
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &alpha = ctx.saved(0), &f = ctx.saved(1), &x = ctx.saved(2);
    const Extent n = extent(gy, alpha);
    Tensor g[3];
    if (Damped && ctx.needs_grad(0)) g[0] = empty_like(gy);
    if (ctx.needs_grad(1)) g[1] = empty_like(gy);
    if (ctx.needs_grad(2)) g[2] = empty_like(alpha);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), residual_backward, Damped, n.rows, n.cols, alpha.rank() == 0,
                     data_or_null<T>(x), data_or_null<T>(f), alpha.data<T>(), gy.data<T>(),
                     mutable_data_or_null<T>(g[0]), mutable_data_or_null<T>(g[1]),
                     mutable_data_or_null<T>(g[2]));
    });
    if (!Damped && ctx.needs_grad(0)) g[0] = gy;
    for (std::size_t i = 0; i < 3; ++i) gx[i] = std::move(g[i]);
  }
};

}  // namespace

Tensor weighted_residual(const Tensor& x, const Tensor& f, const Tensor& alpha) {
  return apply(Residual<false>{}, x, f, alpha);
}
Tensor damped_residual(const Tensor& x, const Tensor& f, const Tensor& alpha) {
  return apply(Residual<true>{}, x, f, alpha);
}

}  // namespace lipgrad
