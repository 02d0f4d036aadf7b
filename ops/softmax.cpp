#include <lipgrad/ops/softmax.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/softmax.h>

namespace lipgrad {
namespace {

// x read as (outer, n, inner) around the dimension.
struct Rows {
  std::int64_t outer, n, inner;
  Rows(const Shape& shape, int dim)
      : outer(shape.leading(dim)), n(shape[dim]), inner(shape.trailing(dim + 1)) {}
};

const std::uint8_t* data_or_null(const Tensor& mask) {
  return mask.defined() ? mask.data<std::uint8_t>() : nullptr;
}

struct Softmax {
  static constexpr auto name = "softmax";
  int dim;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Rows r(in[0].shape(), dim);
    Tensor y = empty_like(in[0]);
    visit_float(name, y.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(y.device(), softmax, r.outer, r.n, r.inner, in[0].data<T>(),
                     data_or_null(in[1]), y.mutable_data<T>());
    });
    ctx.save(y);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Rows r(gy.shape(), dim);
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), softmax_backward, r.outer, r.n, r.inner,
                     ctx.saved(0).template data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

struct LogSoftmax {
  static constexpr auto name = "log_softmax";
  int dim;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Rows r(in[0].shape(), dim);
    Tensor y = empty_like(in[0]);
    visit_float(name, y.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(y.device(), log_softmax, r.outer, r.n, r.inner, in[0].data<T>(),
                     data_or_null(in[1]), y.mutable_data<T>());
    });
    ctx.save(y);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Rows r(gy.shape(), dim);
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), log_softmax_backward, r.outer, r.n, r.inner,
                     ctx.saved(0).template data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

template <class Op>
Tensor over_dim(const Tensor& x, int dim, const Tensor& mask) {
  LIPGRAD_CHECK(x.defined(), "{}: the input is undefined", Op::name);
  LIPGRAD_CHECK(!mask.defined() || (mask.dtype() == u8 && mask.shape() == x.shape() &&
                                    mask.device() == x.device()),
                "{}: the mask must be u8 of shape {} on {}, got {}", Op::name, x.shape(),
                x.device(), mask.str());
  return apply(Op{x.shape().normalize_dim(dim, Op::name)}, x, mask);
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, const Tensor& mask) {
  return over_dim<Softmax>(x, dim, mask);
}
Tensor log_softmax(const Tensor& x, int dim, const Tensor& mask) {
  return over_dim<LogSoftmax>(x, dim, mask);
}

}  // namespace lipgrad
