#include <lipgrad/ops/softmax.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/softmax.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

// Inputs: x and, if there is one, a mask of its shape.
template <bool kLog>
struct SoftmaxOp {
  static constexpr auto name = kLog ? "log_softmax" : "softmax";
  int dim;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    const std::uint8_t* mask = in.size() > 1 ? in[1].data<std::uint8_t>() : nullptr;
    const std::int64_t outer = x.shape().leading(dim), n = x.shape()[dim],
                       inner = x.shape().trailing(dim + 1);
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (kLog) {
        LIPGRAD_LAUNCH(x.device(), log_softmax, outer, n, inner, x.data<T>(), mask,
                       y.mutable_data<T>());
      } else {
        LIPGRAD_LAUNCH(x.device(), softmax, outer, n, inner, x.data<T>(), mask,
                       y.mutable_data<T>());
      }
    });
    ctx.save(y);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor& y = ctx.saved(0);
    const std::int64_t outer = y.shape().leading(dim), n = y.shape()[dim],
                       inner = y.shape().trailing(dim + 1);
    Tensor g = empty_like(y);
    visit_float(name, y.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (kLog) {
        LIPGRAD_LAUNCH(y.device(), log_softmax_backward, outer, n, inner, y.data<T>(), gy.data<T>(),
                       g.mutable_data<T>());
      } else {
        LIPGRAD_LAUNCH(y.device(), softmax_backward, outer, n, inner, y.data<T>(), gy.data<T>(),
                       g.mutable_data<T>());
      }
    });
    gx[0] = std::move(g);
  }
};

template <bool kLog>
Tensor run(const Tensor& x, int dim) {
  using Op = SoftmaxOp<kLog>;
  check_same_kind(Op::name, {&x});
  return apply(Op{x.shape().normalize_dim(dim, Op::name)}, x);
}

template <bool kLog>
Tensor run(const Tensor& x, const Tensor& mask, int dim) {
  using Op = SoftmaxOp<kLog>;
  check_same_kind(Op::name, {&x});
  LIPGRAD_CHECK(mask.defined() && mask.dtype() == u8, "{}: expects a u8 mask, got {}", Op::name,
                mask.str());
  LIPGRAD_CHECK(mask.device() == x.device(), "{}: input on {}, mask on {}; move one with to()",
                Op::name, x.device(), mask.device());
  LIPGRAD_CHECK(broadcasts_to(mask.shape(), x.shape()),
                "{}: the mask {} does not broadcast to the input {}", Op::name, mask.shape(),
                x.shape());
  return apply(Op{x.shape().normalize_dim(dim, Op::name)}, x,
               mask.shape() == x.shape() ? mask : broadcast_to(mask, x.shape()));
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return run<false>(x, dim); }
Tensor softmax(const Tensor& x, const Tensor& mask, int dim) { return run<false>(x, mask, dim); }
Tensor log_softmax(const Tensor& x, int dim) { return run<true>(x, dim); }
Tensor log_softmax(const Tensor& x, const Tensor& mask, int dim) { return run<true>(x, mask, dim); }

}  // namespace lipgrad
