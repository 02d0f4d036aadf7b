#include <lipgrad/ops/dropout.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/dropout.h>

namespace lipgrad {
namespace {

struct Dropout {
  static constexpr auto name = "dropout";
  double p;
  std::uint64_t seed, draw;

  Tensor run(const Tensor& x) const {
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), dropout, x.numel(), p, seed, draw, x.data<T>(),
                     y.mutable_data<T>());
    });
    return y;
  }
  Tensor forward(Ctx&, Inputs in) const { return run(in[0]); }
  void backward(Ctx&, const Tensor& gy, Grads gx) const { gx[0] = run(gy); }
};

struct DropPath {
  static constexpr auto name = "drop_path";
  double p;
  std::uint64_t seed, draw;

  Tensor run(const Tensor& x) const {
    Tensor y = empty_like(x);
    const std::int64_t rows = x.size(0);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), dropout_rows, rows, rows == 0 ? 0 : x.numel() / rows, p, seed,
                     draw, x.data<T>(), y.mutable_data<T>());
    });
    return y;
  }
  Tensor forward(Ctx&, Inputs in) const { return run(in[0]); }
  void backward(Ctx&, const Tensor& gy, Grads gx) const { gx[0] = run(gy); }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, Mode mode) {
  LIPGRAD_CHECK(p >= 0 && p <= 1, "dropout: p must lie in [0, 1], got {}", p);
  check_same_kind(Dropout::name, {&x});
  if (!mode.is_train() || p == 0) return x;
  Generator& rng = mode.rng();
  return apply(Dropout{p, rng.seed(), rng.take_draw()}, x);
}

Tensor drop_path(const Tensor& x, double p, Mode mode) {
  LIPGRAD_CHECK(p >= 0 && p <= 1, "drop_path: p must lie in [0, 1], got {}", p);
  check_same_kind(DropPath::name, {&x});
  LIPGRAD_CHECK(x.rank() >= 1, "drop_path: expects (B, ...), got a scalar");
  if (!mode.is_train() || p == 0) return x;
  Generator& rng = mode.rng();
  return apply(DropPath{p, rng.seed(), rng.take_draw()}, x);
}

CsrMatrix dropout(const CsrMatrix& x, double p, Mode mode) {
  LIPGRAD_CHECK(x.defined(), "dropout: the sparse matrix is undefined");
  return x.with_values(dropout(x.values(), p, mode));
}

}  // namespace lipgrad
