#include <lipgrad/graph/message_passing.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/kernels/edge_softmax.h>
#include <lipgrad/graph/kernels/message_passing.h>
#include <lipgrad/graph/kernels/segment.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/kernels/spmm.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

const std::int64_t* offsets(const CsrPattern& p) { return p.offsets().data<std::int64_t>(); }
const std::int32_t* columns(const CsrPattern& p) { return p.columns().data<std::int32_t>(); }

// x: (rows, ...) on the graph's device; `what` the rows are of.
void check_rows(const char* op, const Graph& graph, const Tensor& x, std::int64_t rows,
                const char* what) {
  LIPGRAD_CHECK(x.defined(), "{}: an input is undefined", op);
  LIPGRAD_CHECK(x.rank() >= 1 && x.size(0) == rows, "{}: a graph of {} {} needs ({}, ...), got {}",
                op, rows, what, rows, x.shape());
  LIPGRAD_CHECK(x.device() == graph.device(), "{}: input on {}, graph on {}; move one with to()",
                op, x.device(), graph.device());
}
void check_nodes(const char* op, const Graph& graph, const Tensor& x) {
  check_rows(op, graph, x, graph.num_nodes(), "nodes");
}
void check_edges(const char* op, const Graph& graph, const Tensor& x) {
  check_rows(op, graph, x, graph.num_edges(), "edges");
}
void check_ends(const char* op, const Graph& graph, const Tensor& source,
                const Tensor& destination) {
  check_nodes(op, graph, source);
  check_nodes(op, graph, destination);
  check_same_kind(op, {&source, &destination});
  LIPGRAD_CHECK(source.shape() == destination.shape(),
                "{}: sources and destinations differ in shape: {} and {}", op, source.shape(),
                destination.shape());
}

// The steps that forward and backward passes are made of.

// (E, ...): x[j] (+ own[i]) of each edge j -> i.
Tensor ends(const char* op, const CsrPattern& p, const Tensor& x, const Tensor& own) {
  Tensor y = empty(x.shape().with(0, p.nnz()), x.dtype(), x.device());
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), edge_ends<T>, p.rows(), p.nnz(), x.shape().trailing(1), offsets(p),
                   columns(p), x.data<T>(), own.defined() ? own.data<T>() : nullptr,
                   y.mutable_data<T>());
  });
  return y;
}

// (E, ...): x[i] of each edge into i, with `mean` over the number of them.
Tensor spread(const char* op, const CsrPattern& p, const Tensor& x, bool mean = false) {
  Tensor y = empty(x.shape().with(0, p.nnz()), x.dtype(), x.device());
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), segment_spread<T>, p.rows(), p.nnz(), x.shape().trailing(1),
                   offsets(p), mean, x.data<T>(), y.mutable_data<T>());
  });
  return y;
}

// (N, ...): the sum of values (E, ...) over the edges into each node, or, `out`, over those that
// leave it.
Tensor sum_of_edges(const char* op, const CsrPattern& pattern, bool out, const Tensor& values) {
  const CsrPattern& p = out ? pattern.transposed() : pattern;
  Tensor y = empty(values.shape().with(0, p.rows()), values.dtype(), values.device());
  visit_float(op, values.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(values.device(), segment_sum<T>, p.rows(), p.nnz(), values.shape().trailing(1),
                   offsets(p), out ? pattern.transposed_order().data<std::int64_t>() : nullptr,
                   false, values.data<T>(), y.mutable_data<T>());
  });
  return y;
}

// (N, H, D) in x's shape: the sum of weight x[j] over the edges j -> i, or, `out`, of weight x[i]
// over the edges that leave j. weights (E, H), or undefined.
Tensor product(const char* op, const CsrPattern& pattern, bool out, std::int64_t heads,
               const Tensor& weights, const Tensor& x) {
  const CsrPattern& p = out ? pattern.transposed() : pattern;
  const std::int64_t width = x.shape().trailing(1);
  Tensor y = empty_like(x);
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), spmm<T>, p.rows(), p.cols(), p.nnz(), heads, width / heads,
                   offsets(p), columns(p),
                   out ? pattern.transposed_order().data<std::int64_t>() : nullptr,
                   weights.defined() ? weights.data<T>() : nullptr, x.data<T>(), width,
                   y.mutable_data<T>(), width);
  });
  return y;
}

// (E, H) in the given shape: <source[j, h, :], destination[i, h, :]> of each edge j -> i.
Tensor products(const char* op, const CsrPattern& p, std::int64_t heads, const Shape& shape,
                const Tensor& source, const Tensor& destination) {
  const std::int64_t width = source.shape().trailing(1);
  Tensor y = empty(shape, source.dtype(), source.device());
  visit_float(op, source.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(source.device(), spmm_backward_values<T>, p.rows(), p.nnz(), heads,
                   width / heads, offsets(p), columns(p), destination.data<T>(), width,
                   source.data<T>(), width, y.mutable_data<T>());
  });
  return y;
}

template <bool kSources>
struct GatherEnds {  // x
  static constexpr auto name = kSources ? "gather_sources" : "gather_destinations";
  CsrPattern pattern;

  Tensor forward(Ctx&, Inputs in) const {
    return kSources ? ends(name, pattern, in[0], {}) : spread(name, pattern, in[0]);
  }
  void backward(Ctx&, const Tensor& gy, Grads gx) const {
    gx[0] = sum_of_edges(name, pattern, kSources, gy);
  }
};

struct EdgeAdd {  // source, destination
  static constexpr auto name = "edge_add";
  CsrPattern pattern;

  Tensor forward(Ctx&, Inputs in) const { return ends(name, pattern, in[0], in[1]); }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    for (const std::size_t i : {0, 1})
      if (ctx.needs_grad(i)) gx[i] = sum_of_edges(name, pattern, i == 0, gy);
  }
};

struct EdgeDot {  // source, destination
  static constexpr auto name = "edge_dot";
  CsrPattern pattern;
  std::int64_t heads;

  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(ctx.needs_grad(1) ? in[0] : Tensor());
    ctx.save(ctx.needs_grad(0) ? in[1] : Tensor());
    const Shape shape = in[0].shape().without(in[0].rank() - 1).with(0, pattern.nnz());
    return products(name, pattern, heads, shape, in[0], in[1]);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(0)) gx[0] = product(name, pattern, true, heads, gy, ctx.saved(1));
    if (ctx.needs_grad(1)) gx[1] = product(name, pattern, false, heads, gy, ctx.saved(0));
  }
};

struct Aggregate {  // x, weights (may be undefined)
  static constexpr auto name = "aggregate";
  CsrPattern pattern;
  std::int64_t heads;

  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(ctx.needs_grad(1) ? in[0] : Tensor());
    ctx.save(ctx.needs_grad(0) ? in[1] : Tensor());
    ctx.save_value(in[1].shape());
    return product(name, pattern, false, heads, in[1], in[0]);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(0)) gx[0] = product(name, pattern, true, heads, ctx.saved(1), gy);
    if (ctx.needs_grad(1))
      gx[1] = products(name, pattern, heads, ctx.value<Shape>(0), ctx.saved(0), gy);
  }
};

struct EdgeSoftmax {  // scores
  static constexpr auto name = "edge_softmax";
  CsrPattern pattern;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), edge_softmax<T>, pattern.rows(), pattern.nnz(),
                     x.shape().trailing(1), offsets(pattern), x.data<T>(), y.mutable_data<T>());
    });
    ctx.save(y);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), edge_softmax_backward<T>, pattern.rows(), pattern.nnz(),
                     gy.shape().trailing(1), offsets(pattern), ctx.saved(0).data<T>(), gy.data<T>(),
                     gx[0].mutable_data<T>());
    });
  }
};

struct NeighborMax {  // x
  static constexpr auto name = "neighbor_max";
  CsrPattern pattern;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty_like(x), best;
    if (ctx.needs_grad(0)) best = empty(x.shape(), i32, x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), neighbor_max<T>, pattern.rows(), pattern.nnz(),
                     x.shape().trailing(1), offsets(pattern), columns(pattern), x.data<T>(),
                     y.mutable_data<T>(),
                     best.defined() ? best.mutable_data<std::int32_t>() : nullptr);
    });
    ctx.save(best);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const CsrPattern& reverse = pattern.transposed();
    gx[0] = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), neighbor_max_backward<T>, reverse.rows(), reverse.nnz(),
                     gy.shape().trailing(1), offsets(reverse), columns(reverse),
                     ctx.saved(0).data<std::int32_t>(), gy.data<T>(), gx[0].mutable_data<T>());
    });
  }
};

// Heads of weights (E) or (E, H) for x.
std::int64_t heads_of(const Graph& graph, const Tensor& x, const Tensor& weights) {
  if (!weights.defined()) return 1;
  check_edges("aggregate", graph, weights);
  check_same_kind("aggregate", {&x, &weights});
  if (weights.numel() == weights.size(0) && weights.rank() <= 2) return 1;
  const std::int64_t heads = weights.rank() == 2 ? weights.size(1) : 0;
  const bool fits =
      heads > 0 && x.rank() >= 2 && x.size(1) % heads == 0 && (x.rank() == 2 || x.size(1) == heads);
  LIPGRAD_CHECK(
      fits,
      "aggregate: weights {} need to be (E), or (E, H) for x (N, H, ...) or (N, H D), got x {}",
      weights.shape(), x.shape());
  return heads;
}

}  // namespace

Tensor gather_sources(const Graph& graph, const Tensor& x) {
  check_nodes("gather_sources", graph, x);
  return apply(GatherEnds<true>{graph.pattern()}, x);
}

Tensor gather_destinations(const Graph& graph, const Tensor& x) {
  check_nodes("gather_destinations", graph, x);
  return apply(GatherEnds<false>{graph.pattern()}, x);
}

Tensor edge_add(const Graph& graph, const Tensor& source, const Tensor& destination) {
  check_ends("edge_add", graph, source, destination);
  return apply(EdgeAdd{graph.pattern()}, source, destination);
}

Tensor edge_dot(const Graph& graph, const Tensor& source, const Tensor& destination) {
  check_ends("edge_dot", graph, source, destination);
  LIPGRAD_CHECK(source.rank() == 2 || (source.rank() == 3 && source.size(1) > 0),
                "edge_dot: expects (N, D) or (N, H, D), got {}", source.shape());
  return apply(EdgeDot{graph.pattern(), source.rank() == 2 ? 1 : source.size(1)}, source,
               destination);
}

Tensor edge_softmax(const Graph& graph, const Tensor& scores) {
  check_edges("edge_softmax", graph, scores);
  return apply(EdgeSoftmax{graph.pattern()}, scores);
}

Tensor aggregate(const Graph& graph, const Tensor& x, const Tensor& weights, Reduce reduce) {
  check_nodes("aggregate", graph, x);
  const std::int64_t heads = heads_of(graph, x, weights);
  if (reduce == Reduce::max) {
    LIPGRAD_CHECK(!weights.defined(), "aggregate: a maximum takes no weights, got {}",
                  weights.shape());
    return neighbor_max(graph, x);
  }
  if (reduce == Reduce::sum) return apply(Aggregate{graph.pattern(), heads}, x, weights);
  // 1 over the number of edges into the same node.
  const Tensor share =
      spread("aggregate", graph.pattern(), ones({graph.num_nodes()}, x.dtype(), x.device()), true);
  if (!weights.defined()) return apply(Aggregate{graph.pattern(), 1}, x, share);
  return apply(Aggregate{graph.pattern(), heads}, x,
               weights.rank() == 1 ? mul(weights, share) : mul(weights, unsqueeze(share, 1)));
}

Tensor neighbor_max(const Graph& graph, const Tensor& x) {
  check_nodes("neighbor_max", graph, x);
  return apply(NeighborMax{graph.pattern()}, x);
}

}  // namespace lipgrad
