#include <lipgrad/graph/dot_attention.h>

#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/graph/attention_pass.h>
#include <lipgrad/graph/kernels/dot_attention.h>

namespace lipgrad {
namespace {

struct DotAttention : AttentionPass<DotForm> {
  static constexpr auto name = "dot_attention";

  // Inputs: q, k, v, scale (may be undefined), and with features of edges qe and e. Outputs: out,
  // edge_sum.
  std::vector<Tensor> forward(Ctx& ctx, Inputs in) const {
    const Tensor& q = in[0];
    const Tensor keep = draw_keep(q.device());
    const std::int64_t nodes = graph.num_nodes(), heads = form.heads;
    Tensor stats = empty({nodes, 3, heads}, q.dtype(), q.device());
    std::vector<Tensor> out{empty({nodes, form.mean_heads ? form.features : heads * form.features},
                                  q.dtype(), q.device())};
    if (has_edges()) out.push_back(empty_like(in[4]));
    visit_float(name, q.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(q.device(), dot_attention_forward<T>, view(false), with(keep), input<T>(in),
                     stats.mutable_data<T>(), out[0].mutable_data<T>(),
                     has_edges() ? out[1].mutable_data<T>() : nullptr);
    });
    for (std::size_t i = 0; i < in.size(); ++i) ctx.save(in[i]);
    ctx.save(stats);
    return out;
  }

  void backward(Ctx& ctx, Inputs gy, Grads gx) const {
    std::vector<Tensor> in;
    for (std::size_t i = 0; i < gx.size(); ++i) in.push_back(ctx.saved(i));
    const Tensor &q = in[0], &stats = ctx.saved(gx.size());
    const std::int64_t nodes = graph.num_nodes();
    // An output that nobody used has no gradient.
    const Tensor grad_out =
        gy[0].defined()
            ? gy[0]
            : zeros({nodes, form.mean_heads ? form.features : form.heads * form.features},
                    q.dtype(), q.device());
    const Tensor grad_edge_sum = has_edges() ? gy[1] : Tensor();
    const Tensor keep = draw_keep(q.device());
    const DotForm masked = with(keep);
    const auto wants = [&](std::size_t i) { return i < gx.size() && ctx.needs_grad(i); };
    Tensor centre = empty({nodes, form.heads}, q.dtype(), q.device());
    Tensor grad_q = empty_like(q), grad_scale, grad_qe;
    if (wants(3)) grad_scale = empty_like(in[3]);
    if (has_edges()) grad_qe = empty_like(in[4]);
    const std::int64_t row = form.heads * form.features;
    visit_float(name, q.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const DotInput<T> inputs = input<T>(Inputs(in));
      const DotCotangents<T> grad{grad_out.data<T>(), data_or_null<T>(grad_edge_sum)};
      LIPGRAD_LAUNCH(q.device(), dot_attention_backward_targets<T>, view(false), masked, inputs,
                     stats.data<T>(), grad, centre.mutable_data<T>(), grad_q.mutable_data<T>(), row,
                     mutable_data_or_null<T>(grad_scale), mutable_data_or_null<T>(grad_qe));
      if (wants(0)) gx[0] = grad_q;
      if (wants(3)) gx[3] = grad_scale;
      if (wants(4)) gx[4] = grad_qe;
      if (wants(1) || wants(2)) {
        Tensor grad_k = empty_like(in[1]), grad_v = empty_like(in[2]);
        LIPGRAD_LAUNCH(q.device(), dot_attention_backward_sources<T>, view(true), masked, inputs,
                       stats.data<T>(), centre.data<T>(), grad, grad_k.mutable_data<T>(), row,
                       grad_v.mutable_data<T>(), row);
        if (wants(1)) gx[1] = grad_k;
        if (wants(2)) gx[2] = grad_v;
      }
      if (wants(5)) {
        Tensor grad_e = empty_like(in[5]);
        LIPGRAD_LAUNCH(q.device(), dot_attention_backward_edges<T>, view(false), masked, inputs,
                       stats.data<T>(), centre.data<T>(), grad, grad_e.mutable_data<T>());
        gx[5] = grad_e;
      }
    });
  }

 private:
  bool has_edges() const { return form.edge_features > 0; }

  template <class T>
  DotInput<T> input(Inputs in) const {
    const std::int64_t row = form.heads * form.features;
    DotInput<T> input{in[0].data<T>(),       in[1].data<T>(), in[2].data<T>(), row, row, row,
                      data_or_null<T>(in[3])};
    if (has_edges()) {
      input.qe = in[4].data<T>();
      input.e = in[5].data<T>();
    }
    return input;
  }
};

void check(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& scale, const DotAttentionOptions& options) {
  constexpr auto op = DotAttention::name;
  check_same_kind(op, {&q, &k, &v});
  LIPGRAD_CHECK(graph.device() == q.device(), "{}: the graph is on {}, q on {}; move one with to()",
                op, graph.device(), q.device());
  LIPGRAD_CHECK(q.rank() == 3 && q.size(0) == graph.num_nodes() && q.size(1) >= 1 &&
                    q.size(2) >= 1 && q.shape() == k.shape() && q.shape() == v.shape(),
                "{}: q, k and v must be ({}, heads, features) all three, got {}, {} and {}", op,
                graph.num_nodes(), q.shape(), k.shape(), v.shape());
  if (scale.defined()) {
    check_same_kind(op, {&q, &scale});
    LIPGRAD_CHECK(scale.shape() == Shape({q.size(0), q.size(1)}),
                  "{}: scale must be ({}, {}), got {}", op, q.size(0), q.size(1), scale.shape());
  }
  LIPGRAD_CHECK(options.dropout >= 0 && options.dropout <= 1,
                "{}: dropout must be from 0 to 1, got {}", op, options.dropout);
  LIPGRAD_CHECK(!options.factor || std::isfinite(*options.factor),
                "{}: factor must be finite, got {}", op, *options.factor);
}

DotAttention make(const Graph& graph, const Tensor& q, const Tensor& scale,
                  std::int64_t edge_features, const DotAttentionOptions& options, Mode mode) {
  DotAttention op;
  op.graph = graph;
  op.form.heads = q.size(1);
  op.form.features = q.size(2);
  op.form.edge_features = edge_features;
  op.form.self_loops = options.self_loops;
  op.form.mean_heads = options.mean_heads;
  op.form.factor = options.factor.value_or(
      scale.defined() ? 1 : 1 / std::sqrt(static_cast<double>(op.form.features)));
  op.drop(options.dropout, mode);
  return op;
}

}  // namespace

Tensor dot_attention(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& scale, const DotAttentionOptions& options, Mode mode) {
  check(graph, q, k, v, scale, options);
  return apply(make(graph, q, scale, 0, options, mode), q, k, v, scale)[0];
}

EdgeAttention dot_attention(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& scale, const Tensor& qe, const Tensor& e,
                            const DotAttentionOptions& options, Mode mode) {
  check(graph, q, k, v, scale, options);
  constexpr auto op = DotAttention::name;
  check_same_kind(op, {&q, &qe, &e});
  LIPGRAD_CHECK(e.rank() == 2 && e.size(0) == graph.num_edges() && e.size(1) >= 1,
                "{}: e must be ({}, features), got {}", op, graph.num_edges(), e.shape());
  LIPGRAD_CHECK(qe.shape() == Shape({q.size(0), q.size(1), e.size(1)}),
                "{}: qe must be ({}, {}, {}), got {}", op, q.size(0), q.size(1), e.size(1),
                qe.shape());
  std::vector<Tensor> out =
      apply(make(graph, q, scale, e.size(1), options, mode), q, k, v, scale, qe, e);
  return {out[0], out[1]};
}

}  // namespace lipgrad
