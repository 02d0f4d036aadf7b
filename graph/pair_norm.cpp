#include <lipgrad/graph/pair_norm.h>

#include <cmath>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/kernels/pair_norm.h>

namespace lipgrad {
namespace {

struct PairNorm {  // y(N, D) of x(N, D)
  static constexpr auto name = "pair_norm";
  PairNormOptions options;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::int64_t rows = x.size(0), cols = x.size(1);
    const bool whole = options.kind == PairNormKind::pn;
    const double scale = options.scale, eps = options.eps;
    Tensor y = empty_like(x), root = empty({whole ? 1 : rows}, x.dtype(), x.device());
    if (rows > 0) {
      visit_float(name, x.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* from = x.data<T>();
        T *to = y.mutable_data<T>(), *r = root.mutable_data<T>();
        switch (options.kind) {
          case PairNormKind::pn:
            LIPGRAD_LAUNCH(x.device(), pair_norm, rows, cols, scale, eps, from, to, r);
            break;
          case PairNormKind::pn_si:
            LIPGRAD_LAUNCH(x.device(), pair_norm_si, rows, cols, scale, eps, from, to, r);
            break;
          case PairNormKind::pn_scs:
            LIPGRAD_LAUNCH(x.device(), pair_norm_scs, rows, cols, scale, eps, from, to, r);
            break;
        }
      });
    }
    ctx.save(options.kind == PairNormKind::pn_scs ? x : y);
    ctx.save(root);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &saved = ctx.saved(0), &root = ctx.saved(1);
    const std::int64_t rows = gy.size(0), cols = gy.size(1);
    const double scale = options.scale;
    Tensor g = empty_like(gy);
    if (rows > 0) {
      visit_float(name, gy.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *xy = saved.data<T>(), *r = root.data<T>(), *from = gy.data<T>();
        T* to = g.mutable_data<T>();
        switch (options.kind) {
          case PairNormKind::pn:
            LIPGRAD_LAUNCH(gy.device(), pair_norm_backward, rows, cols, scale, xy, r, from, to);
            break;
          case PairNormKind::pn_si:
            LIPGRAD_LAUNCH(gy.device(), pair_norm_si_backward, rows, cols, scale, xy, r, from, to);
            break;
          case PairNormKind::pn_scs:
            LIPGRAD_LAUNCH(gy.device(), pair_norm_scs_backward, rows, cols, scale, xy, r, from, to);
            break;
        }
      });
    }
    gx[0] = std::move(g);
  }
};

bool positive(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

Tensor pair_norm(const Tensor& x, const PairNormOptions& options) {
  check_same_kind(PairNorm::name, {&x});
  LIPGRAD_CHECK(x.rank() == 2, "pair_norm: expects a matrix (nodes, features), got {}", x.shape());
  LIPGRAD_CHECK(positive(options.scale) && positive(options.eps),
                "pair_norm: scale and eps must be positive and finite, got {} and {}",
                options.scale, options.eps);
  return apply(PairNorm{options}, x);
}

}  // namespace lipgrad
