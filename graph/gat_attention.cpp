#include <lipgrad/graph/gat_attention.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/graph/attention_pass.h>
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/kernels/gat.h>

namespace lipgrad {
namespace {

// Per (node, head): what the scores are divided by, see kernels/gat.h.
struct Denominators {
  Tensor target, source, argmax, factor;  // undefined without a norm; source in one form only

  template <class T>
  GatNorm<T> view(double eps) const {
    return {data_or_null<T>(target), data_or_null<T>(source), eps};
  }
};

struct GatAttention : AttentionPass<GatForm> {
  static constexpr auto name = "gat_attention";
  std::optional<VectorScoreNorm> norm;

  // Inputs: z, a_src, a_dst, bias (may be undefined).
  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &z = in[0], &a_src = in[1], &a_dst = in[2], &bias = in[3];
    const std::int64_t nodes = graph.num_nodes(), heads = form.heads;
    const Tensor keep = draw_keep(z.device());
    const auto per_head = [&] { return empty({nodes, heads}, z.dtype(), z.device()); };
    Tensor s_src = per_head(), stats = empty({nodes, 3, heads}, z.dtype(), z.device());
    Tensor out = empty({nodes, form.mean_heads ? form.features : heads * form.features}, z.dtype(),
                       z.device());
    Tensor squares;
    Denominators denominators;
    if (norm) {
      squares = per_head();
      denominators.target = per_head();
      denominators.argmax = empty({norm->global ? 1 : nodes, heads}, i32, z.device());
      denominators.factor = empty({heads}, z.dtype(), z.device());
      if (norm->edge_source) denominators.source = squares;
    }
    visit_float(name, z.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(z.device(), gat_scores<T>, nodes, nodes, heads, form.features, z.data<T>(),
                     a_src.data<T>(), a_dst.data<T>(), s_src.mutable_data<T>(),
                     stats.mutable_data<T>(), mutable_data_or_null<T>(squares));
      if (squares.defined())
        LIPGRAD_LAUNCH(z.device(), gat_norm<T>, view(false), form, norm_form(), a_src.data<T>(),
                       a_dst.data<T>(), squares.mutable_data<T>(),
                       denominators.target.mutable_data<T>(),
                       denominators.argmax.mutable_data<std::int32_t>(),
                       denominators.factor.mutable_data<T>());
      LIPGRAD_LAUNCH(z.device(), gat_forward<T>, view(false), with(keep),
                     denominators.view<T>(eps()), z.data<T>(), s_src.data<T>(),
                     data_or_null<T>(bias), stats.mutable_data<T>(), out.mutable_data<T>());
    });
    for (const Tensor& kept : {z, a_src, a_dst, s_src, stats, denominators.target,
                               denominators.source, denominators.argmax, denominators.factor})
      ctx.save(kept);
    return out;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &z = ctx.saved(0), &a_src = ctx.saved(1), &a_dst = ctx.saved(2),
                 &s_src = ctx.saved(3), &stats = ctx.saved(4);
    const Denominators denominators{ctx.saved(5), ctx.saved(6), ctx.saved(7), ctx.saved(8)};
    const Tensor keep = draw_keep(z.device());
    const GatForm masked = with(keep);
    const std::int64_t nodes = graph.num_nodes(), heads = form.heads;
    Tensor grad_stats = empty({nodes, 2, heads}, z.dtype(), z.device());
    Tensor grad_norm, z_factor, a_factor, grad_bias;
    Tensor factor = denominators.factor;
    const bool through_norm = norm && !norm->detach;
    if (norm) {
      grad_norm = empty_like(grad_stats);
      z_factor =
          through_norm ? empty_like(s_src) : zeros(s_src.shape(), s_src.dtype(), s_src.device());
      a_factor = through_norm ? empty_like(factor)
                              : zeros(factor.shape(), factor.dtype(), factor.device());
      if (!through_norm) factor = a_factor;
    }
    if (ctx.needs_grad(3)) grad_bias = empty({gy.size(1)}, z.dtype(), z.device());
    visit_float(name, z.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(z.device(), gat_backward_targets<T>, view(false), masked,
                     denominators.view<T>(eps()), z.data<T>(), s_src.data<T>(), stats.data<T>(),
                     gy.data<T>(), grad_stats.mutable_data<T>(), mutable_data_or_null<T>(grad_norm),
                     mutable_data_or_null<T>(grad_bias));
      if (grad_bias.defined()) gx[3] = grad_bias;
      if (!ctx.needs_grad(0) && !ctx.needs_grad(1) && !ctx.needs_grad(2)) return;
      if (through_norm)
        LIPGRAD_LAUNCH(z.device(), gat_norm_backward<T>, view(true), form, norm_form(),
                       denominators.argmax.data<std::int32_t>(), denominators.factor.data<T>(),
                       grad_norm.data<T>(), z_factor.mutable_data<T>(), a_factor.mutable_data<T>());
      Tensor grad_z = empty_like(z), grad_a_src = empty_like(a_src), grad_a_dst = empty_like(a_dst);
      LIPGRAD_LAUNCH(z.device(), gat_backward_sources<T>, view(true), masked,
                     denominators.view<T>(eps()), data_or_null<T>(factor),
                     data_or_null<T>(z_factor), data_or_null<T>(a_factor), z.data<T>(),
                     s_src.data<T>(), stats.data<T>(), grad_stats.data<T>(), gy.data<T>(),
                     a_src.data<T>(), a_dst.data<T>(), grad_z.mutable_data<T>(),
                     grad_a_src.mutable_data<T>(), grad_a_dst.mutable_data<T>());
      if (ctx.needs_grad(0)) gx[0] = grad_z;
      if (ctx.needs_grad(1)) gx[1] = grad_a_src;
      if (ctx.needs_grad(2)) gx[2] = grad_a_dst;
    });
  }

 private:
  double eps() const { return norm ? norm->eps : 0; }
  GatNormForm norm_form() const {
    return {!norm->edge_source, norm->joint, norm->kappa, norm->global};
  }
};

void check(const Graph& graph, const Tensor& z, const Tensor& a_src, const Tensor& a_dst,
           const Tensor& bias, const GatAttentionOptions& options) {
  constexpr auto op = GatAttention::name;
  check_same_kind(op, {&z, &a_src, &a_dst});
  LIPGRAD_CHECK(graph.device() == z.device(), "{}: the graph is on {}, z on {}; move one with to()",
                op, graph.device(), z.device());
  LIPGRAD_CHECK(a_src.rank() == 2 && a_src.numel() > 0 && a_src.shape() == a_dst.shape(),
                "{}: a_src and a_dst must both be (heads, features), got {} and {}", op,
                a_src.shape(), a_dst.shape());
  const std::int64_t nodes = graph.num_nodes(), heads = a_src.size(0), features = a_src.size(1);
  LIPGRAD_CHECK(
      z.shape() == Shape({nodes, heads * features}) || z.shape() == Shape({nodes, heads, features}),
      "{}: z must be ({}, {}) or ({}, {}, {}) for {} nodes and {} heads of {} features, got {}", op,
      nodes, heads * features, nodes, heads, features, nodes, heads, features, z.shape());
  if (bias.defined()) {
    check_same_kind(op, {&z, &bias});
    const std::int64_t width = options.mean_heads ? features : heads * features;
    LIPGRAD_CHECK(bias.shape() == Shape{width}, "{}: bias must be ({}), got {}", op, width,
                  bias.shape());
  }
  LIPGRAD_CHECK(options.dropout >= 0 && options.dropout <= 1,
                "{}: dropout must be from 0 to 1, got {}", op, options.dropout);
  LIPGRAD_CHECK(!options.norm || !options.norm->target_lipschitz,
                "{}: target_lipschitz is for layers, which know the projection: GatConv", op);
}

}  // namespace

Tensor gat_attention(const Graph& graph, const Tensor& z, const Tensor& a_src, const Tensor& a_dst,
                     const Tensor& bias, const GatAttentionOptions& options, Mode mode) {
  check(graph, z, a_src, a_dst, bias, options);
  GatAttention op;
  op.graph = graph;
  if (options.norm) op.norm = vector_score_norm(op.name, ScoreKind::gat, *options.norm);
  op.form.heads = a_src.size(0);
  op.form.features = a_src.size(1);
  op.form.negative_slope = options.negative_slope;
  op.form.self_loops = options.self_loops;
  op.form.mean_heads = options.mean_heads;
  op.drop(options.dropout, mode);
  return apply(std::move(op), z, a_src, a_dst, bias);
}

}  // namespace lipgrad
