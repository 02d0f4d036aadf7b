#include <lipgrad/graph/message_passing.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/kernels/message_passing.h>

namespace lipgrad {
namespace {

const std::int64_t* offsets(const CsrPattern& p) { return p.offsets().data<std::int64_t>(); }
const std::int32_t* columns(const CsrPattern& p) { return p.columns().data<std::int32_t>(); }

// x: (N, ...) on the graph's device.
void check_nodes(const char* op, const Graph& graph, const Tensor& x) {
  LIPGRAD_CHECK(x.defined() && x.rank() >= 1 && x.size(0) == graph.num_nodes(),
                "{}: a graph of {} nodes needs ({}, ...), got {}", op, graph.num_nodes(),
                graph.num_nodes(), x.defined() ? x.shape().str() : "undefined");
  LIPGRAD_CHECK(x.device() == graph.device(), "{}: input on {}, graph on {}; move one with to()",
                op, x.device(), graph.device());
}

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

}  // namespace

Tensor neighbor_max(const Graph& graph, const Tensor& x) {
  check_nodes("neighbor_max", graph, x);
  return apply(NeighborMax{graph.pattern()}, x);
}

}  // namespace lipgrad
