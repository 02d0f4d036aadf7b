#include <lipgrad/ops/linear.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/kernels/linear.h>
#include <lipgrad/ops/kernels/matmul.h>
#include <lipgrad/ops/kernels/spmm.h>

namespace lipgrad {
namespace {

constexpr auto op = "linear";

struct Nonlinearity {
  Activation f;
  double a;
  bool keeps_result() const { return saves_result(f, a); }
};

Nonlinearity nonlinearity(const LinearOptions& options) {
  const double usual = options.activation == Activation::leaky_relu ? 0.01 : 1.0;
  const double a = options.parameter.value_or(usual);
  LIPGRAD_CHECK(options.activation != Activation::elu || a >= 0,
                "linear: alpha of elu must not be negative, got {}", a);
  LIPGRAD_CHECK(options.activation != Activation::softplus || a > 0,
                "linear: beta of softplus must be positive, got {}", a);
  return {options.activation, a};
}

void check_weights(const std::string& x, std::int64_t in, const Tensor& weight,
                   const Tensor& bias) {
  LIPGRAD_CHECK(weight.rank() == 2 && weight.size(1) == in,
                "linear: x {} needs a weight of (out, {}), got {}", x, in, weight.shape());
  LIPGRAD_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)},
                "linear: weight {} needs a bias of ({}), got {}", weight.shape(), weight.size(0),
                bias.defined() ? bias.shape().str() : "");
}

// What the activation's gradient is computed from: y, z (its argument), or nothing.
enum class Kept { nothing, result, argument };
Kept kept_for(const Nonlinearity& f, bool recording) {
  if (!recording || f.f == Activation::identity) return Kept::nothing;
  return f.keeps_result() ? Kept::result : Kept::argument;
}

// The gradients of z and of the bias (if wanted) from that of y. gz is gy itself for the identity.
template <class T>
void bias_gradients(const Nonlinearity& f, const Tensor& saved, const Tensor& gy, std::int64_t cols,
                    Tensor& gz, Tensor* gbias) {
  const bool identity = f.f == Activation::identity;
  gz = identity ? gy.detach() : empty_like(gy);
  if (gbias) *gbias = empty({cols}, gy.dtype(), gy.device());
  if (identity && !gbias) return;
  LIPGRAD_LAUNCH(gy.device(), linear_backward_bias<T>, f.f, f.a, cols == 0 ? 0 : gy.numel() / cols,
                 cols, identity ? nullptr : saved.data<T>(), gy.data<T>(),
                 identity ? nullptr : gz.mutable_data<T>(),
                 gbias ? gbias->mutable_data<T>() : nullptr);
}

struct Linear {
  static constexpr auto name = op;
  Nonlinearity f;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &weight = in[1], &bias = in[2];
    const std::int64_t in_size = weight.size(1), out = weight.size(0);
    const std::int64_t rows = x.shape().leading(x.rank() - 1);
    Tensor y = empty(x.shape().with(x.rank() - 1, out), x.dtype(), x.device()), pre;
    const Kept kept = kept_for(f, ctx.recording());
    if (kept == Kept::argument) pre = empty_like(y);
    visit_float(op, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), linear<T>, f.f, f.a, rows, in_size, out, x.data<T>(),
                     weight.data<T>(), data_or_null<T>(bias), mutable_data_or_null<T>(pre),
                     y.mutable_data<T>());
    });
    ctx.save(ctx.needs_grad(1) ? x : Tensor());
    ctx.save(ctx.needs_grad(0) ? weight : Tensor());
    ctx.save(kept == Kept::result ? y : pre);
    ctx.save_value(x.shape());
    ctx.save_value(weight.shape());
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Shape shape_x = ctx.value<Shape>(0), shape_w = ctx.value<Shape>(1);
    const std::int64_t in = shape_w[1], out = shape_w[0],
                       rows = shape_x.leading(shape_x.rank() - 1);
    visit_float(op, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Tensor gz;
      bias_gradients<T>(f, ctx.saved(2), gy, out, gz, ctx.needs_grad(2) ? &gx[2] : nullptr);
      if (ctx.needs_grad(0)) {
        gx[0] = empty(shape_x, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), matmul<T>, 1, false, false, rows, in, out, gz.data<T>(), 0,
                       ctx.saved(1).data<T>(), 0, gx[0].mutable_data<T>());
      }
      if (ctx.needs_grad(1)) {
        gx[1] = empty(shape_w, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), matmul<T>, 1, true, false, out, in, rows, gz.data<T>(), 0,
                       ctx.saved(0).data<T>(), 0, gx[1].mutable_data<T>());
      }
    });
  }
};

template <class T>
Tensor transposed(const Tensor& x) {
  Tensor y = empty({x.size(1), x.size(0)}, x.dtype(), x.device());
  LIPGRAD_LAUNCH(x.device(), transpose<T>, x.size(0), x.size(1), x.data<T>(), y.mutable_data<T>());
  return y;
}

// Inputs: the values of x, weight, bias.
struct SparseLinear {
  static constexpr auto name = op;
  Nonlinearity f;
  CsrPattern pattern;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &values = in[0], &weight = in[1], &bias = in[2];
    const std::int64_t rows = pattern.rows(), out = weight.size(0);
    Tensor y = empty({rows, out}, values.dtype(), values.device()), pre;
    const Kept kept = kept_for(f, ctx.recording());
    if (kept == Kept::argument) pre = empty_like(y);
    visit_float(op, values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Tensor by_input = transposed<T>(weight);  // rows to be gathered, (in, out)
      T* z = pre.defined() ? pre.mutable_data<T>() : y.mutable_data<T>();
      LIPGRAD_LAUNCH(values.device(), spmm<T>, rows, pattern.cols(), pattern.nnz(), 1, out,
                     pattern.offsets().data<std::int64_t>(), pattern.columns().data<std::int32_t>(),
                     nullptr, values.data<T>(), by_input.data<T>(), out, z, out);
      const T* b = data_or_null<T>(bias);
      if (pre.defined()) {
        if (b)
          LIPGRAD_LAUNCH(values.device(), bias_activation<T>, Activation::identity, 0.0, rows, out,
                         z, b, z);
        LIPGRAD_LAUNCH(values.device(), activation<T>, f.f, f.a, rows * out, z,
                       y.mutable_data<T>());
      } else if (b || f.f != Activation::identity) {
        LIPGRAD_LAUNCH(values.device(), bias_activation<T>, f.f, f.a, rows, out, z, b, z);
      }
    });
    ctx.save(ctx.needs_grad(1) ? values : Tensor());
    ctx.save(ctx.needs_grad(0) ? weight : Tensor());
    ctx.save(kept == Kept::result ? y : pre);
    ctx.save_value(weight.shape());
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Shape shape_w = ctx.value<Shape>(0);
    const std::int64_t in = shape_w[1], out = shape_w[0];
    visit_float(op, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Tensor gz;
      bias_gradients<T>(f, ctx.saved(2), gy, out, gz, ctx.needs_grad(2) ? &gx[2] : nullptr);
      if (ctx.needs_grad(0)) {
        const Tensor by_input = transposed<T>(ctx.saved(1));
        gx[0] = empty({pattern.nnz()}, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), spmm_backward_values<T>, pattern.rows(), pattern.nnz(), 1, out,
                       pattern.offsets().data<std::int64_t>(),
                       pattern.columns().data<std::int32_t>(), gz.data<T>(), out,
                       by_input.data<T>(), out, gx[0].mutable_data<T>());
      }
      if (ctx.needs_grad(1)) {
        const CsrPattern& reverse = pattern.transposed();
        Tensor by_input = empty({in, out}, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), spmm<T>, in, pattern.rows(), pattern.nnz(), 1, out,
                       reverse.offsets().data<std::int64_t>(),
                       reverse.columns().data<std::int32_t>(),
                       pattern.transposed_order().data<std::int64_t>(), ctx.saved(0).data<T>(),
                       gz.data<T>(), out, by_input.mutable_data<T>(), out);
        gx[1] = transposed<T>(by_input);
      }
    });
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearOptions options) {
  check_same_kind(op, {&x, &weight});
  if (bias.defined()) check_same_kind(op, {&x, &bias});
  LIPGRAD_CHECK(x.rank() >= 1, "linear: expects x of (..., in), got a scalar");
  check_weights(x.shape().str(), x.size(-1), weight, bias);
  return apply(Linear{nonlinearity(options)}, x, weight, bias);
}

Tensor linear(const CsrMatrix& x, const Tensor& weight, const Tensor& bias, LinearOptions options) {
  LIPGRAD_CHECK(x.defined(), "linear: the sparse matrix is undefined");
  check_same_kind(op, {&x.values(), &weight});
  if (bias.defined()) check_same_kind(op, {&x.values(), &bias});
  check_weights(Shape{x.rows(), x.cols()}.str(), x.cols(), weight, bias);
  return apply(SparseLinear{nonlinearity(options), x.pattern()}, x.values(), weight, bias);
}

}  // namespace lipgrad
