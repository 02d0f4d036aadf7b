#include <lipgrad/ops/activation.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/activation.h>

namespace lipgrad {
namespace {

constexpr const char* name_of(Activation f) {
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
  return "";
}

template <Activation kF>
struct ActivationOp {
  static constexpr auto name = name_of(kF);
  double a;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    check_same_kind(name, {&x});
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), activation, kF, a, x.numel(), x.data<T>(), y.mutable_data<T>());
    });
    ctx.save(saves_result(kF, a) ? y : x);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), activation_backward, kF, a, gy.numel(),
                     ctx.saved(0).template data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

template <Activation kF>
Tensor run(const Tensor& x, double a = 0) {
  return apply(ActivationOp<kF>{a}, x);
}

}  // namespace

Tensor relu(const Tensor& x) { return run<Activation::relu>(x); }
Tensor leaky_relu(const Tensor& x, double slope) { return run<Activation::leaky_relu>(x, slope); }
Tensor elu(const Tensor& x, double alpha) {
  LIPGRAD_CHECK(alpha >= 0, "elu: alpha must be >= 0, got {}", alpha);
  return run<Activation::elu>(x, alpha);
}
Tensor gelu(const Tensor& x) { return run<Activation::gelu>(x); }
Tensor gelu_tanh(const Tensor& x) { return run<Activation::gelu_tanh>(x); }
Tensor silu(const Tensor& x) { return run<Activation::silu>(x); }
Tensor sigmoid(const Tensor& x) { return run<Activation::sigmoid>(x); }
Tensor tanh(const Tensor& x) { return run<Activation::tanh>(x); }
Tensor softplus(const Tensor& x, double beta) {
  LIPGRAD_CHECK(beta > 0, "softplus: beta must be positive, got {}", beta);
  return run<Activation::softplus>(x, beta);
}

}  // namespace lipgrad
