#include <lipgrad/ops/activation.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/activation.h>

namespace lipgrad {
namespace {

constexpr const char* activation_name(Activation f) {
  switch (f) {
    case Activation::identity:
      return "identity";
    case Activation::relu:
      return "relu";
    case Activation::leaky_relu:
      return "leaky_relu";
    case Activation::elu:
      return "elu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
    case Activation::sigmoid:
      return "sigmoid";
    case Activation::tanh:
      return "tanh";
    case Activation::softplus:
      return "softplus";
  }
  return "activation";
}

template <Activation F>
struct ActivationOp {
  static constexpr auto name = activation_name(F);
  double a;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), activation, F, a, x.numel(), x.data<T>(), y.mutable_data<T>());
    });
    ctx.save(saves_result(F, a) ? y : x);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), activation_backward, F, a, gy.numel(),
                     ctx.saved(0).template data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

template <Activation F>
Tensor activate(const Tensor& x, double a = 0) {
  LIPGRAD_CHECK(x.defined(), "{}: the input is undefined", activation_name(F));
  return apply(ActivationOp<F>{a}, x);
}

}  // namespace

Tensor relu(const Tensor& x) { return activate<Activation::relu>(x); }
Tensor leaky_relu(const Tensor& x, double slope) {
  return activate<Activation::leaky_relu>(x, slope);
}

Tensor elu(const Tensor& x, double alpha) {
  LIPGRAD_CHECK(alpha >= 0, "elu: alpha must be >= 0, got {}", alpha);
  return activate<Activation::elu>(x, alpha);
}

Tensor gelu(const Tensor& x, Gelu form) {
  return form == Gelu::exact ? activate<Activation::gelu>(x) : activate<Activation::gelu_tanh>(x);
}

Tensor silu(const Tensor& x) { return activate<Activation::silu>(x); }
Tensor sigmoid(const Tensor& x) { return activate<Activation::sigmoid>(x); }
Tensor tanh(const Tensor& x) { return activate<Activation::tanh>(x); }

Tensor softplus(const Tensor& x, double beta) {
  LIPGRAD_CHECK(beta > 0, "softplus: beta must be > 0, got {}", beta);
  return activate<Activation::softplus>(x, beta);
}

}  // namespace lipgrad
