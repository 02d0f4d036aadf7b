#include <lipgrad/ops/gru_cell.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/kernels/gru_cell.h>
#include <lipgrad/ops/linear.h>

namespace lipgrad {
namespace {

struct GruGates {  // x(N, 3D), hidden(N, 3D), h(N, D)
  static constexpr auto name = "gru_gates";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &hidden = in[1], &h = in[2];
    Tensor y = empty_like(h);
    visit_float(name, h.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(h.device(), gru_gates, h.size(0), h.size(1), x.data<T>(), hidden.data<T>(),
                     h.data<T>(), y.mutable_data<T>());
    });
    for (std::size_t i = 0; i < 3; ++i) ctx.save(in[i]);
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &hidden = ctx.saved(1), &h = ctx.saved(2);
    Tensor g[3];
    for (std::size_t i = 0; i < 3; ++i)
      if (ctx.needs_grad(i)) g[i] = empty_like(ctx.saved(i));
    visit_float(name, h.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(h.device(), gru_gates_backward, h.size(0), h.size(1), x.data<T>(),
                     hidden.data<T>(), h.data<T>(), gy.data<T>(), mutable_data_or_null<T>(g[0]),
                     mutable_data_or_null<T>(g[1]), mutable_data_or_null<T>(g[2]));
    });
    for (std::size_t i = 0; i < 3; ++i) gx[i] = std::move(g[i]);
  }
};

std::int64_t checked(std::int64_t in, std::int64_t out) {
  LIPGRAD_CHECK(in >= 1 && out >= 1, "GruCell: in and out must be at least 1, got {} and {}", in,
                out);
  return 3 * out;
}

}  // namespace

Tensor gru_gates(const Tensor& x, const Tensor& hidden, const Tensor& h) {
  check_same_kind(GruGates::name, {&x, &hidden, &h});
  LIPGRAD_CHECK(h.rank() == 2 && x.shape() == Shape({h.size(0), 3 * h.size(1)}) &&
                    hidden.shape() == x.shape(),
                "gru_gates: expects (N, 3D), (N, 3D) and (N, D), got {}, {} and {}", x.shape(),
                hidden.shape(), h.shape());
  return apply(GruGates{}, x, hidden, h);
}

GruCell::GruCell(Module& parent, std::string name, std::int64_t in, std::int64_t out,
                 const GruCellOptions& options)
    : Module(parent, std::move(name)),
      weight_ih(*this, "weight_ih", {checked(in, out), in}, init::fan_uniform(out), options.dtype),
      weight_hh(*this, "weight_hh", {3 * out, out}, init::fan_uniform(out), options.dtype) {
  if (!options.bias) return;
  bias_ih.emplace(*this, "bias_ih", Shape{3 * out}, init::fan_uniform(out), options.dtype);
  bias_hh.emplace(*this, "bias_hh", Shape{3 * out}, init::fan_uniform(out), options.dtype);
}

Tensor GruCell::forward(const Tensor& x, const Tensor& h) const {
  const ModuleScope scope(path());
  const auto project = [](const Tensor& from, const Parameter& weight,
                          const std::optional<Parameter>& bias) {
    return linear(from, weight, bias ? bias->value() : Tensor());
  };
  return gru_gates(project(x, weight_ih, bias_ih), project(h, weight_hh, bias_hh), h);
}

}  // namespace lipgrad
