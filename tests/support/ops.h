#pragma once

#include <cmath>
#include <vector>

#include <lipgrad/core/map.h>
#include <lipgrad/core/op.h>

// Small ops for tests of the engine, so that those do not rest on ops/.
namespace lipgrad::testing {

struct Product {  // y = a * b, same shape
  static constexpr auto name = "product";
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    ctx.save(in[1]);
    return map(name, in[0], in[1], [](auto a, auto b) { return a * b; });
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    if (ctx.needs_grad(0))
      gx[0] = map(name, ctx.saved(1), gy, [](auto b, auto g) { return b * g; });
    if (ctx.needs_grad(1))
      gx[1] = map(name, ctx.saved(0), gy, [](auto a, auto g) { return a * g; });
  }
};
inline Tensor product(const Tensor& a, const Tensor& b) { return apply(Product{}, a, b); }

struct Sum {  // y = a + b, b of a's shape or a scalar
  static constexpr auto name = "sum2";
  Tensor forward(Ctx&, Inputs in) const {
    if (in[1].numel() == in[0].numel())
      return map(name, in[0], in[1], [](auto a, auto b) { return a + b; });
    return map(name, in[0], [b = in[1].item()](auto a) { return a + b; });
  }
  void backward(Ctx&, const Tensor& gy, Grads gx) const {
    gx[0] = gy;
    gx[1] = gy;
  }
};
inline Tensor add2(const Tensor& a, const Tensor& b) { return apply(Sum{}, a, b); }

struct SinCos {  // two outputs
  static constexpr auto name = "sincos";
  std::vector<Tensor> forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    return {map(name, in[0], [](auto x) { return std::sin(x); }),
            map(name, in[0], [](auto x) { return std::cos(x); })};
  }
  void backward(Ctx& ctx, Inputs gy, Grads gx) const {
    Tensor g = zeros_like(ctx.saved(0));
    for (std::int64_t i = 0; i < g.numel(); ++i) {
      const double x = ctx.saved(0).data<double>()[i];
      double value = 0;
      if (gy[0].defined()) value += gy[0].data<double>()[i] * std::cos(x);
      if (gy[1].defined()) value -= gy[1].data<double>()[i] * std::sin(x);
      g.mutable_data<double>()[i] = value;
    }
    gx[0] = g;
  }
};

struct Total {  // y = the sum of all elements, f64
  static constexpr auto name = "total";
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].shape());
    double sum = 0;
    for (std::int64_t i = 0; i < in[0].numel(); ++i) sum += in[0].data<double>()[i];
    return full({}, sum, f64);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = full(ctx.value<Shape>(0), gy.item(), f64);
  }
};
inline Tensor total(const Tensor& x) { return apply(Total{}, x); }

}  // namespace lipgrad::testing
