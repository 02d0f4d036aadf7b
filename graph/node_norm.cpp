#include <lipgrad/graph/node_norm.h>

#include <cmath>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/kernels/node_norm.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/reduce.h>

namespace lipgrad {
namespace {

struct NodeNorm {  // y(N, D) of x(N, D)
  static constexpr auto name = "node_norm";
  double power, eps;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty_like(x), mean = empty({x.size(0)}, x.dtype(), x.device()),
           scale = empty_like(mean);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), node_norm, x.size(0), x.size(1), eps, power, x.data<T>(),
                     y.mutable_data<T>(), mean.mutable_data<T>(), scale.mutable_data<T>());
    });
    ctx.save(x);
    ctx.save(mean);
    ctx.save(scale);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), node_norm_backward, gy.size(0), gy.size(1), power,
                     ctx.saved(0).data<T>(), ctx.saved(1).data<T>(), ctx.saved(2).data<T>(),
                     gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

bool positive(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

Tensor node_norm(const Tensor& x, double p, double eps) {
  check_same_kind(NodeNorm::name, {&x});
  LIPGRAD_CHECK(x.rank() == 2 && x.size(1) >= 1,
                "node_norm: expects a matrix (nodes, features), got {}", x.shape());
  LIPGRAD_CHECK(positive(p) && positive(eps),
                "node_norm: p and eps must be positive and finite, got {} and {}", p, eps);
  return apply(NodeNorm{1 / p, eps}, x);
}

Tensor mean_norm(const Tensor& x) {
  check_same_kind("mean_norm", {&x});
  LIPGRAD_CHECK(x.rank() == 2, "mean_norm: expects a matrix (nodes, features), got {}", x.shape());
  return x.size(0) > 0 ? sub(x, mean(x, {0}, true)) : x;
}

}  // namespace lipgrad
