#include <lipgrad/graph/graph_layer_norm.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/graph/kernels/graph_layer_norm.h>
#include <lipgrad/ops/init.h>

namespace lipgrad {
namespace {

struct GraphLayerNormOp {  // x, weight, bias
  static constexpr auto name = "graph_layer_norm";
  double eps;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty_like(x), stats = zeros({2}, x.dtype(), x.device());
    if (x.numel() > 0) {
      visit_float(name, x.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        LIPGRAD_LAUNCH(x.device(), graph_layer_norm, x.size(0), x.size(1), eps, x.data<T>(),
                       data_or_null<T>(in[1]), data_or_null<T>(in[2]), y.mutable_data<T>(),
                       stats.mutable_data<T>());
      });
    }
    ctx.save(x);
    ctx.save(in[1]);
    ctx.save(stats);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &weight = ctx.saved(1), &stats = ctx.saved(2);
    Tensor g[3];
    for (std::size_t i = 0; i < 3; ++i)
      if (ctx.needs_grad(i))
        g[i] = i == 0 ? empty_like(x) : zeros({x.size(1)}, x.dtype(), x.device());
    if (x.numel() > 0) {
      visit_float(name, x.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        LIPGRAD_LAUNCH(x.device(), graph_layer_norm_backward, x.size(0), x.size(1), x.data<T>(),
                       data_or_null<T>(weight), stats.data<T>(), gy.data<T>(),
                       mutable_data_or_null<T>(g[0]), mutable_data_or_null<T>(g[1]),
                       mutable_data_or_null<T>(g[2]));
      });
    }
    for (std::size_t i = 0; i < 3; ++i) gx[i] = std::move(g[i]);
  }
};

std::int64_t checked(std::int64_t features) {
  LIPGRAD_CHECK(features >= 1, "GraphLayerNorm: features must be at least 1, got {}", features);
  return features;
}

}  // namespace

Tensor graph_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_same_kind(GraphLayerNormOp::name, {&x});
  LIPGRAD_CHECK(x.rank() == 2 && x.size(1) >= 1,
                "graph_layer_norm: expects a matrix (nodes, features), got {}", x.shape());
  for (const Tensor* v : {&weight, &bias}) {
    if (!v->defined()) continue;
    check_same_kind(GraphLayerNormOp::name, {&x, v});
    LIPGRAD_CHECK(v->shape() == Shape({x.size(1)}),
                  "graph_layer_norm: weight or bias {} does not fit the rows of {}", v->shape(),
                  x.shape());
  }
  return apply(GraphLayerNormOp{eps}, x, weight, bias);
}

GraphLayerNorm::GraphLayerNorm(Module& parent, std::string name, std::int64_t features,
                               const GraphLayerNormOptions& options)
    : Module(parent, std::move(name)), features_(checked(features)), eps_(options.eps) {
  LIPGRAD_CHECK(eps_ >= 0, "GraphLayerNorm: eps must not be negative, got {}", eps_);
  if (!options.affine) return;
  weight.emplace(*this, "weight", Shape{features}, init::ones(), options.dtype);
  bias.emplace(*this, "bias", Shape{features}, init::zeros(), options.dtype);
}

Tensor GraphLayerNorm::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rank() == 2 && x.size(1) == features_,
                "GraphLayerNorm: made for nodes of {} features, got {}", features_, x.shape());
  if (!weight) return graph_layer_norm(x, {}, {}, eps_);
  return graph_layer_norm(x, *weight, *bias, eps_);
}

}  // namespace lipgrad
