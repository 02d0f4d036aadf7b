#include <lipgrad/ops/elementwise.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/elementwise.h>

namespace lipgrad {
namespace {

constexpr const char* name_of(Unary op) {
  switch (op) {
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
      return "add";
    case Unary::mul_scalar:
      return "mul";
    case Unary::div_scalar:
    case Unary::scalar_div:
      return "div";
    case Unary::scalar_sub:
      return "sub";
    case Unary::pow_scalar:
      return "pow";
    case Unary::clamp:
      return "clamp";
  }
  return "";
}

constexpr const char* name_of(Binary op) {
  switch (op) {
    case Binary::add:
      return "add";
    case Binary::sub:
      return "sub";
    case Binary::mul:
      return "mul";
    case Binary::div:
      return "div";
    case Binary::pow:
      return "pow";
    case Binary::minimum:
      return "minimum";
    case Binary::maximum:
      return "maximum";
  }
  return "";
}

template <Unary kOp>
struct UnaryOp {
  static constexpr auto name = name_of(kOp);
  double a = 0, b = 0;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    check_same_kind(name, {&x});
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), unary, kOp, a, b, x.numel(), x.data<T>(), y.mutable_data<T>());
    });
    if constexpr (!saves_nothing(kOp)) ctx.save(saves_result(kOp) ? y : x);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if constexpr (kOp == Unary::add_scalar) {
      gx[0] = gy;
      return;
    }
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* saved = nullptr;
      if constexpr (!saves_nothing(kOp)) saved = ctx.saved(0).template data<T>();
      LIPGRAD_LAUNCH(gy.device(), unary_backward, kOp, a, b, gy.numel(), saved, gy.data<T>(),
                     g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

template <Unary kOp>
Tensor unary(const Tensor& x, double a = 0, double b = 0) {
  return apply(UnaryOp<kOp>{a, b}, x);
}

// How tensors are read as one shape.
Broadcast plan(const Shape& shape, std::initializer_list<const Tensor*> operands) {
  bool same = true;
  for (const Tensor* x : operands) same = same && x->shape() == shape;
  if (same) return Broadcast(shape.numel());
  Broadcast p(shape.rank(), shape.begin());
  int k = 0;
  for (const Tensor* x : operands) p.set_operand(k++, x->rank(), x->shape().begin());
  p.collapse(k);
  return p;
}

Tensor run(Binary op, const Tensor& u, const Tensor& v, const Shape& shape) {
  Tensor y = empty(shape, u.dtype(), u.device());
  const Broadcast p = plan(shape, {&u, &v});
  visit_float(name_of(op), u.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(u.device(), binary, op, p, u.data<T>(), v.data<T>(), y.mutable_data<T>());
  });
  return y;
}

Tensor run_backward(Binary op, int which, const Tensor& u, const Tensor& v, const Tensor& gy) {
  Tensor g = empty_like(gy);
  const Broadcast p = plan(gy.shape(), {&u, &v, &gy});
  visit_float(name_of(op), gy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(gy.device(), binary_backward, op, which, p, u.data<T>(), v.data<T>(),
                   gy.data<T>(), g.mutable_data<T>());
  });
  return g;
}

template <Binary kOp>
struct BinaryOp {
  static constexpr auto name = name_of(kOp);

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &u = in[0], &v = in[1];
    check_same_kind(name, {&u, &v});
    if constexpr (kOp == Binary::mul) {
      ctx.save(ctx.needs_grad(1) ? u : Tensor());
      ctx.save(ctx.needs_grad(0) ? v : Tensor());
    } else if constexpr (kOp == Binary::div) {
      ctx.save(ctx.needs_grad(1) ? u : Tensor());
      ctx.save(v);
    } else if constexpr (kOp != Binary::add && kOp != Binary::sub) {
      ctx.save(u);
      ctx.save(v);
    }
    if (u.shape() == v.shape()) return run(kOp, u, v, u.shape());
    return run(kOp, u, v, broadcast_shapes(name, u.shape(), v.shape()));
  }

  // Gradients have the broadcast shape; the engine sums them back.
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if constexpr (kOp == Binary::add || kOp == Binary::sub) {
      if (ctx.needs_grad(1)) gx[1] = kOp == Binary::add ? gy : negated(gy);
      if (ctx.needs_grad(0)) gx[0] = gy;
    } else if constexpr (kOp == Binary::mul) {
      if (ctx.needs_grad(0)) gx[0] = run(kOp, gy, ctx.saved(1), gy.shape());
      if (ctx.needs_grad(1)) gx[1] = run(kOp, gy, ctx.saved(0), gy.shape());
    } else if constexpr (kOp == Binary::div) {
      if (ctx.needs_grad(0)) gx[0] = run(kOp, gy, ctx.saved(1), gy.shape());
      if (ctx.needs_grad(1)) gx[1] = run_backward(kOp, 1, ctx.saved(0), ctx.saved(1), gy);
    } else {
      for (int which : {0, 1})
        if (ctx.needs_grad(which))
          gx[which] = run_backward(kOp, which, ctx.saved(0), ctx.saved(1), gy);
    }
  }

 private:
  static Tensor negated(const Tensor& gy) { return lipgrad::neg(gy); }
};

struct Where {
  static constexpr auto name = "where";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &c = in[0], &u = in[1], &v = in[2];
    check_same_kind(name, {&u, &v});
    LIPGRAD_CHECK(c.defined() && c.dtype() == u8, "where: expects a u8 condition, got {}", c.str());
    LIPGRAD_CHECK(c.device() == u.device(), "where: the condition is on {}, the operands on {}",
                  c.device(), u.device());
    const Shape shape =
        broadcast_shapes(name, c.shape(), broadcast_shapes(name, u.shape(), v.shape()));
    ctx.save(c);
    Tensor y = empty(shape, u.dtype(), u.device());
    const Broadcast p = plan(shape, {&c, &u, &v});
    visit_float(name, u.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(u.device(), where, p, c.data<std::uint8_t>(), u.data<T>(), v.data<T>(),
                     y.mutable_data<T>());
    });
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor& c = ctx.saved(0);
    const Broadcast p = plan(gy.shape(), {&c, &gy, &gy});
    for (int which : {1, 2}) {
      if (!ctx.needs_grad(which)) continue;
      Tensor g = empty_like(gy);
      visit_float(name, gy.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T *from = gy.data<T>(), *none = nullptr;
        LIPGRAD_LAUNCH(gy.device(), where, p, c.data<std::uint8_t>(), which == 1 ? from : none,
                       which == 2 ? from : none, g.mutable_data<T>());
      });
      gx[which] = std::move(g);
    }
  }
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::add>{}, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::sub>{}, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::mul>{}, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::div>{}, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return apply(BinaryOp<Binary::pow>{}, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) {
  return apply(BinaryOp<Binary::minimum>{}, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return apply(BinaryOp<Binary::maximum>{}, a, b);
}

Tensor add(const Tensor& a, double b) { return unary<Unary::add_scalar>(a, b); }
Tensor sub(const Tensor& a, double b) { return unary<Unary::add_scalar>(a, -b); }
Tensor sub(double a, const Tensor& b) { return unary<Unary::scalar_sub>(b, a); }
Tensor mul(const Tensor& a, double b) { return unary<Unary::mul_scalar>(a, b); }
Tensor div(const Tensor& a, double b) { return unary<Unary::div_scalar>(a, b); }
Tensor div(double a, const Tensor& b) { return unary<Unary::scalar_div>(b, a); }
Tensor pow(const Tensor& a, double b) { return unary<Unary::pow_scalar>(a, b); }
Tensor clamp(const Tensor& x, double low, double high) {
  LIPGRAD_CHECK(low <= high, "clamp: low {} and high {} are no range", low, high);
  return unary<Unary::clamp>(x, low, high);
}

Tensor neg(const Tensor& x) { return unary<Unary::neg>(x); }
Tensor exp(const Tensor& x) { return unary<Unary::exp>(x); }
Tensor log(const Tensor& x) { return unary<Unary::log>(x); }
Tensor sqrt(const Tensor& x) { return unary<Unary::sqrt>(x); }
Tensor abs(const Tensor& x) { return unary<Unary::abs>(x); }
Tensor square(const Tensor& x) { return unary<Unary::square>(x); }
Tensor reciprocal(const Tensor& x) { return unary<Unary::reciprocal>(x); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return apply(Where{}, condition, a, b);
}

}  // namespace lipgrad
