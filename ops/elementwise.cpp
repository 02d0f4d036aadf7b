#include <lipgrad/ops/elementwise.h>

#include <cmath>

#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/elementwise.h>

namespace lipgrad {
namespace {

// ---- one operand

constexpr const char* unary_name(Unary f) {
  switch (f) {
    case Unary::neg:
      return "neg";
    case Unary::exp:
      return "exp";
    case Unary::log:
      return "log";
    case Unary::sqrt:
      return "sqrt";
    case Unary::abs:
      return "abs";
    case Unary::square:
      return "square";
    case Unary::reciprocal:
      return "reciprocal";
    case Unary::add_scalar:
      return "add_scalar";
    case Unary::mul_scalar:
      return "mul_scalar";
    case Unary::div_scalar:
      return "div_scalar";
    case Unary::scalar_sub:
      return "scalar_sub";
    case Unary::scalar_div:
      return "scalar_div";
    case Unary::pow_scalar:
      return "pow_scalar";
    case Unary::clamp:
      return "clamp";
  }
  return "unary";
}

template <Unary F>
struct UnaryOp {
  static constexpr auto name = unary_name(F);
  double a = 0, b = 0;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), unary, F, a, b, x.numel(), x.data<T>(), y.mutable_data<T>());
    });
    if constexpr (!saves_nothing(F)) ctx.save(saves_result(F) ? y : x);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* saved = nullptr;
      if constexpr (!saves_nothing(F)) saved = ctx.saved(0).template data<T>();
      LIPGRAD_LAUNCH(gy.device(), unary_backward, F, a, b, gy.numel(), saved, gy.data<T>(),
                     g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

template <Unary F>
Tensor unary(const Tensor& x, double a = 0, double b = 0) {
  LIPGRAD_CHECK(x.defined(), "{}: the input is undefined", unary_name(F));
  return apply(UnaryOp<F>{a, b}, x);
}

// ---- two operands

// How operands of these shapes are read over their common shape.
template <class... Shapes>
Broadcast broadcast_over(const Shape& result, const Shapes&... shapes) {
  if ((... && (shapes == result))) return Broadcast(result.numel());
  Broadcast index(result.rank(), result.begin());
  int k = 0;
  (index.set_operand(k++, shapes.rank(), shapes.begin()), ...);
  index.collapse(k);
  return index;
}

Tensor binary_map(const char* name, Binary f, const Tensor& a, const Tensor& b) {
  check_same_kind(name, {&a, &b});
  Tensor y = empty(broadcast_shapes(name, a.shape(), b.shape()), a.dtype(), a.device());
  const Broadcast index = broadcast_over(y.shape(), a.shape(), b.shape());
  visit_float(name, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(a.device(), binary, f, index, a.data<T>(), b.data<T>(), y.mutable_data<T>());
  });
  return y;
}

struct Add {
  static constexpr auto name = "add";
  Tensor forward(Ctx&, Inputs in) const { return binary_map(name, Binary::add, in[0], in[1]); }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(0)) gx[0] = gy;
    if (ctx.needs_grad(1)) gx[1] = gy;
  }
};

struct Sub {
  static constexpr auto name = "sub";
  Tensor forward(Ctx&, Inputs in) const { return binary_map(name, Binary::sub, in[0], in[1]); }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(0)) gx[0] = gy;
    if (ctx.needs_grad(1)) gx[1] = -gy;
  }
};

struct Mul {
  static constexpr auto name = "mul";
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(ctx.needs_grad(1) ? in[0] : Tensor());
    ctx.save(ctx.needs_grad(0) ? in[1] : Tensor());
    return binary_map(name, Binary::mul, in[0], in[1]);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(0)) gx[0] = binary_map(name, Binary::mul, gy, ctx.saved(1));
    if (ctx.needs_grad(1)) gx[1] = binary_map(name, Binary::mul, gy, ctx.saved(0));
  }
};

constexpr const char* binary_name(Binary f) {
  switch (f) {
    case Binary::div:
      return "div";
    case Binary::pow:
      return "pow";
    case Binary::minimum:
      return "minimum";
    case Binary::maximum:
      return "maximum";
    default:
      return "binary";
  }
}

// Those whose gradients depend on both operands.
template <Binary F>
struct BinaryOp {
  static constexpr auto name = binary_name(F);
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    ctx.save(in[1]);
    return binary_map(name, F, in[0], in[1]);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &a = ctx.saved(0), &b = ctx.saved(1);
    const Broadcast index = broadcast_over(gy.shape(), a.shape(), b.shape(), gy.shape());
    for (int which : {0, 1}) {
      if (!ctx.needs_grad(which)) continue;
      Tensor g = empty_like(gy);
      visit_float(name, gy.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        LIPGRAD_LAUNCH(gy.device(), binary_backward, F, which, index, a.data<T>(), b.data<T>(),
                       gy.data<T>(), g.mutable_data<T>());
      });
      gx[which] = std::move(g);
    }
  }
};

// ---- where

Tensor where_map(const Tensor& condition, const Tensor* a, const Tensor* b, const Shape& shape,
                 DType dtype) {
  Tensor y = empty(shape, dtype, condition.device());
  const Broadcast index =
      broadcast_over(shape, condition.shape(), a ? a->shape() : shape, b ? b->shape() : shape);
  visit_float("where", dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(condition.device(), where, index, condition.data<std::uint8_t>(),
                   a ? a->data<T>() : nullptr, b ? b->data<T>() : nullptr, y.mutable_data<T>());
  });
  return y;
}

struct Where {
  static constexpr auto name = "where";
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    const Shape shape =
        broadcast_shapes(name, in[0].shape(), broadcast_shapes(name, in[1].shape(), in[2].shape()));
    return where_map(in[0], &in[1], &in[2], shape, in[1].dtype());
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(1)) gx[1] = where_map(ctx.saved(0), &gy, nullptr, gy.shape(), gy.dtype());
    if (ctx.needs_grad(2)) gx[2] = where_map(ctx.saved(0), nullptr, &gy, gy.shape(), gy.dtype());
  }
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return apply(Add{}, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return apply(Sub{}, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return apply(Mul{}, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::div>{}, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::pow>{}, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) {
  return apply(BinaryOp<Binary::minimum>{}, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return apply(BinaryOp<Binary::maximum>{}, a, b);
}
Tensor pow(const Tensor& x, double exponent) { return unary<Unary::pow_scalar>(x, exponent); }

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator+(const Tensor& x, double a) { return unary<Unary::add_scalar>(x, a); }
Tensor operator+(double a, const Tensor& x) { return unary<Unary::add_scalar>(x, a); }
Tensor operator-(const Tensor& x, double a) { return unary<Unary::add_scalar>(x, -a); }
Tensor operator-(double a, const Tensor& x) { return unary<Unary::scalar_sub>(x, a); }
Tensor operator*(const Tensor& x, double a) { return unary<Unary::mul_scalar>(x, a); }
Tensor operator*(double a, const Tensor& x) { return unary<Unary::mul_scalar>(x, a); }
Tensor operator/(const Tensor& x, double a) { return unary<Unary::div_scalar>(x, a); }
Tensor operator/(double a, const Tensor& x) { return unary<Unary::scalar_div>(x, a); }
Tensor operator-(const Tensor& x) { return unary<Unary::neg>(x); }

Tensor exp(const Tensor& x) { return unary<Unary::exp>(x); }
Tensor log(const Tensor& x) { return unary<Unary::log>(x); }
Tensor sqrt(const Tensor& x) { return unary<Unary::sqrt>(x); }
Tensor abs(const Tensor& x) { return unary<Unary::abs>(x); }
Tensor square(const Tensor& x) { return unary<Unary::square>(x); }
Tensor reciprocal(const Tensor& x) { return unary<Unary::reciprocal>(x); }

Tensor clamp(const Tensor& x, double low, double high) {
  LIPGRAD_CHECK(low <= high, "clamp: low {} is not <= high {}", low, high);
  return unary<Unary::clamp>(x, low, high);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_same_kind("where", {&a, &b});
  LIPGRAD_CHECK(condition.defined() && condition.dtype() == u8,
                "where: the condition must be u8, got {}", condition.str());
  return apply(Where{}, condition, a, b);
}

}  // namespace lipgrad
