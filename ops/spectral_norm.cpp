#include <lipgrad/ops/spectral_norm.h>

#include <cmath>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {

namespace {

// The weight in f64 on the CPU.
Tensor checked(const char* op, const Tensor& w) {
  check_same_kind(op, {&w});
  LIPGRAD_CHECK(w.dtype() == f32 || w.dtype() == f64, "{}: expects f32 or f64, got {}", op,
                w.dtype());
  LIPGRAD_CHECK(w.rank() >= 2, "{}: a weight is (out, in, ...), got {}", op, w.shape());
  const Tensor matrix = w.detach().to(cpu_device).to(f64);
  const double* element = matrix.data<double>();
  for (std::int64_t i = 0; i < matrix.numel(); ++i)
    LIPGRAD_CHECK(std::isfinite(element[i]), "{}: element {} of a weight {} is {}", op, i,
                  w.shape(), element[i]);
  return matrix;
}

struct SpectralNorm {
  static constexpr auto name = "spectral_norm_of";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& w = in[0];
    const Tensor matrix = checked(name, w);
    const std::int64_t rows = w.shape()[0], cols = w.shape().trailing(1);
    Tensor left = empty({rows, 1}, f64), right = empty({1, cols}, f64);
    const double value =
        largest_singular_value(rows, cols, matrix.data<double>(), left.mutable_data<double>(),
                               right.mutable_data<double>());
    ctx.save(left.to(w.dtype()).to(w.device()));
    ctx.save(right.to(w.dtype()).to(w.device()));
    ctx.save(w);  // for its shape
    return full({}, value, w.dtype()).to(w.device());
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = reshape(mul(mul(ctx.saved(0), ctx.saved(1)), gy), ctx.saved(2).shape());
  }
};

}  // namespace

double spectral_norm(const Tensor& w) {
  const Tensor matrix = checked("spectral_norm", w);
  return largest_singular_value(w.shape()[0], w.shape().trailing(1), matrix.data<double>());
}

Tensor spectral_norm_of(const Tensor& w) { return apply(SpectralNorm{}, w); }

}  // namespace lipgrad
