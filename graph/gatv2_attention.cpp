#include <lipgrad/graph/gatv2_attention.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/graph/attention_pass.h>
#include <lipgrad/graph/gat_norm.h>
#include <lipgrad/graph/kernels/gatv2.h>

namespace lipgrad {
namespace {

// Numbers of (node, head) that the norm leaves; undefined without one.
struct Denominators {
  Tensor inverse, argmax, factor, left_length, right_length;
};

struct Gatv2Attention : AttentionPass<GatForm> {
  static constexpr auto name = "gatv2_attention";
  std::optional<VectorScoreNorm> norm;

  // Inputs: left, right, a, bias, edge weight, edge values, loop values; all but the first three
  // may be undefined.
  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &left = in[0], &right = in[1], &a = in[2], &bias = in[3];
    const std::int64_t nodes = graph.num_nodes(), heads = form.heads;
    const Tensor keep = draw_keep(left.device());
    const auto per_head = [&] { return empty({nodes, heads}, left.dtype(), left.device()); };
    Tensor stats = empty({nodes, 2, heads}, left.dtype(), left.device());
    Tensor out = empty({nodes, form.mean_heads ? form.features : heads * form.features},
                       left.dtype(), left.device());
    Denominators kept;
    if (norm) {
      kept.inverse = per_head();
      kept.left_length = per_head();
      kept.right_length = per_head();
      kept.argmax = empty({norm->global ? 1 : nodes, heads}, i32, left.device());
      kept.factor = empty({heads}, left.dtype(), left.device());
    }
    visit_float(name, left.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (norm) {
        LIPGRAD_LAUNCH(left.device(), head_lengths<T>, nodes, heads, form.features, left.data<T>(),
                       kept.left_length.mutable_data<T>());
        LIPGRAD_LAUNCH(left.device(), head_lengths<T>, nodes, heads, form.features, right.data<T>(),
                       kept.right_length.mutable_data<T>());
        LIPGRAD_LAUNCH(left.device(), gatv2_norm<T>, view(false), form, norm_form(), a.data<T>(),
                       kept.left_length.data<T>(), kept.right_length.data<T>(),
                       kept.inverse.mutable_data<T>(), kept.argmax.mutable_data<std::int32_t>(),
                       kept.factor.mutable_data<T>());
      }
      LIPGRAD_LAUNCH(left.device(), gatv2_forward<T>, view(false), with(keep),
                     inputs<T>(left, right, a, kept.inverse, in[4], in[5], in[6]),
                     data_or_null<T>(bias), stats.mutable_data<T>(), out.mutable_data<T>());
    });
    for (const Tensor& tensor : {left, right, a, stats, kept.inverse, kept.argmax, kept.factor,
                                 kept.left_length, kept.right_length, in[4], in[5], in[6]})
      ctx.save(tensor);
    return out;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &left = ctx.saved(0), &right = ctx.saved(1), &a = ctx.saved(2),
                 &stats = ctx.saved(3), &edge_weight = ctx.saved(9), &value = ctx.saved(10),
                 &loop = ctx.saved(11);
    const Denominators kept{ctx.saved(4), ctx.saved(5), ctx.saved(6), ctx.saved(7), ctx.saved(8)};
    const Tensor keep = draw_keep(left.device());
    const GatForm masked = with(keep);
    const std::int64_t nodes = graph.num_nodes(), heads = form.heads;
    const auto per_head = [&] { return empty({nodes, heads}, left.dtype(), left.device()); };
    const bool through_norm = norm && !norm->detach;
    Tensor centre = per_head(), grad_left = empty_like(left), grad_a = empty_like(a), grad_bias,
           grad_denominator, left_factor, right_factor, a_factor;
    if (ctx.needs_grad(3)) grad_bias = empty({gy.size(1)}, left.dtype(), left.device());
    if (through_norm) {
      grad_denominator = per_head();
      left_factor = per_head();
      right_factor = per_head();
      a_factor = empty_like(kept.factor);
    }
    visit_float(name, left.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Device device = left.device();
      const Gatv2Inputs<T> in = inputs<T>(left, right, a, kept.inverse, edge_weight, value, loop);
      LIPGRAD_LAUNCH(device, gatv2_backward_targets<T>, view(false), masked, in, stats.data<T>(),
                     gy.data<T>(), centre.mutable_data<T>(), grad_left.mutable_data<T>(),
                     grad_a.mutable_data<T>(), mutable_data_or_null<T>(grad_bias),
                     mutable_data_or_null<T>(grad_denominator));
      if (through_norm) {
        LIPGRAD_LAUNCH(device, gatv2_norm_backward<T>, view(true), form, norm_form(),
                       kept.argmax.data<std::int32_t>(), kept.factor.data<T>(),
                       kept.inverse.data<T>(), kept.left_length.data<T>(),
                       kept.right_length.data<T>(), grad_denominator.data<T>(),
                       left_factor.mutable_data<T>(), right_factor.mutable_data<T>(),
                       a_factor.mutable_data<T>());
        LIPGRAD_LAUNCH(device, add_scaled_heads<T>, nodes, heads, form.features, false,
                       left_factor.data<T>(), left.data<T>(), grad_left.mutable_data<T>());
        LIPGRAD_LAUNCH(device, add_scaled_heads<T>, std::int64_t{1}, heads, form.features, true,
                       a_factor.data<T>(), a.data<T>(), grad_a.mutable_data<T>());
      }
      if (ctx.needs_grad(0)) gx[0] = grad_left;
      if (ctx.needs_grad(2)) gx[2] = grad_a;
      if (ctx.needs_grad(3)) gx[3] = grad_bias;
      if (ctx.needs_grad(1)) {
        Tensor grad_right = empty_like(right);
        LIPGRAD_LAUNCH(device, gatv2_backward_sources<T>, view(true), masked, in, stats.data<T>(),
                       centre.data<T>(), gy.data<T>(), grad_right.mutable_data<T>());
        if (through_norm)
          LIPGRAD_LAUNCH(device, add_scaled_heads<T>, nodes, heads, form.features, false,
                         right_factor.data<T>(), right.data<T>(), grad_right.mutable_data<T>());
        gx[1] = grad_right;
      }
      Tensor grad_weight, grad_value, grad_loop;
      if (ctx.needs_grad(4)) gx[4] = grad_weight = empty_like(edge_weight);
      if (ctx.needs_grad(5)) gx[5] = grad_value = empty_like(value);
      if (ctx.needs_grad(6)) gx[6] = grad_loop = empty_like(loop);
      if (grad_weight.defined() || grad_value.defined() || grad_loop.defined())
        LIPGRAD_LAUNCH(device, gatv2_backward_edges<T>, view(false), masked, in, stats.data<T>(),
                       centre.data<T>(), gy.data<T>(), mutable_data_or_null<T>(grad_weight),
                       mutable_data_or_null<T>(grad_value), mutable_data_or_null<T>(grad_loop));
    });
  }

 private:
  Gatv2NormForm norm_form() const { return {norm->global, norm->joint, norm->kappa, norm->eps}; }

  template <class T>
  static Gatv2Inputs<T> inputs(const Tensor& left, const Tensor& right, const Tensor& a,
                               const Tensor& inverse, const Tensor& weight, const Tensor& value,
                               const Tensor& loop) {
    Gatv2Inputs<T> in{left.data<T>(), right.data<T>(), a.data<T>(), data_or_null<T>(inverse), {}};
    if (value.defined())
      in.edges = {value.size(1), weight.data<T>(), value.data<T>(), data_or_null<T>(loop)};
    return in;
  }
};

void check(const Graph& graph, const Tensor& left, const Tensor& right, const Tensor& a,
           const Tensor& bias, const GatAttentionOptions& options, const EdgeFeatures& edges) {
  constexpr auto op = Gatv2Attention::name;
  check_same_kind(op, {&left, &right, &a});
  LIPGRAD_CHECK(graph.device() == left.device(),
                "{}: the graph is on {}, left on {}; move one with to()", op, graph.device(),
                left.device());
  LIPGRAD_CHECK(a.rank() == 2 && a.numel() > 0, "{}: a must be (heads, features), got {}", op,
                a.shape());
  const std::int64_t nodes = graph.num_nodes(), heads = a.size(0), features = a.size(1);
  for (const Tensor& x : {left, right})
    LIPGRAD_CHECK(
        x.shape() == Shape({nodes, heads * features}) ||
            x.shape() == Shape({nodes, heads, features}),
        "{}: left and right must be ({}, {}) or ({}, {}, {}) for {} nodes and {} heads of "
        "{} features, got {} and {}",
        op, nodes, heads * features, nodes, heads, features, nodes, heads, features, left.shape(),
        right.shape());
  if (bias.defined()) {
    check_same_kind(op, {&left, &bias});
    const std::int64_t width = options.mean_heads ? features : heads * features;
    LIPGRAD_CHECK(bias.shape() == Shape{width}, "{}: bias must be ({}), got {}", op, width,
                  bias.shape());
  }
  LIPGRAD_CHECK(options.dropout >= 0 && options.dropout <= 1,
                "{}: dropout must be from 0 to 1, got {}", op, options.dropout);
  LIPGRAD_CHECK(!options.norm || !options.norm->target_lipschitz,
                "{}: target_lipschitz is for layers, which know the projections: Gatv2Conv", op);
  LIPGRAD_CHECK(edges.value.defined() == edges.weight.defined() &&
                    (edges.value.defined() || !edges.loop.defined()),
                "{}: features of edges need value and weight, both", op);
  if (!edges.value.defined()) return;
  check_same_kind(op, {&left, &edges.value, &edges.weight});
  LIPGRAD_CHECK(edges.value.rank() == 2 && edges.value.size(0) == graph.num_edges() &&
                    edges.value.size(1) > 0,
                "{}: features of edges must be ({}, F) with F at least 1, got {}", op,
                graph.num_edges(), edges.value.shape());
  const std::int64_t width = edges.value.size(1);
  LIPGRAD_CHECK(edges.weight.shape() == Shape({heads * features, width}),
                "{}: the weight of edges must be ({}, {}), got {}", op, heads * features, width,
                edges.weight.shape());
  if (!edges.loop.defined()) return;
  check_same_kind(op, {&left, &edges.loop});
  LIPGRAD_CHECK(edges.loop.shape() == Shape({nodes, width}),
                "{}: features of loops must be ({}, {}), got {}", op, nodes, width,
                edges.loop.shape());
}

}  // namespace

Tensor gatv2_attention(const Graph& graph, const Tensor& left, const Tensor& right, const Tensor& a,
                       const Tensor& bias, const GatAttentionOptions& options, Mode mode,
                       const EdgeFeatures& edges) {
  check(graph, left, right, a, bias, options, edges);
  Gatv2Attention op;
  op.graph = graph;
  if (options.norm) op.norm = vector_score_norm(op.name, ScoreKind::gatv2, *options.norm);
  op.form.heads = a.size(0);
  op.form.features = a.size(1);
  op.form.negative_slope = options.negative_slope;
  op.form.self_loops = options.self_loops;
  op.form.mean_heads = options.mean_heads;
  op.drop(options.dropout, mode);
  return apply(std::move(op), left, right, a, bias, edges.weight, edges.value, edges.loop);
}

}  // namespace lipgrad
