#include <lipgrad/ops/spmm.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/spmm.h>

namespace lipgrad {
namespace {

constexpr auto op = "spmm";

// Inputs: the values of a, and x.
struct Spmm {
  static constexpr auto name = op;
  CsrPattern pattern;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &values = in[0], &x = in[1];
    const std::int64_t features = x.size(1);
    Tensor y = empty({pattern.rows(), features}, x.dtype(), x.device());
    visit_float(op, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), spmm<T>, pattern.rows(), pattern.cols(), pattern.nnz(), 1,
                     features, pattern.offsets().data<std::int64_t>(),
                     pattern.columns().data<std::int32_t>(), nullptr, values.data<T>(), x.data<T>(),
                     features, y.mutable_data<T>(), features);
    });
    ctx.save(ctx.needs_grad(1) ? values : Tensor());
    ctx.save(ctx.needs_grad(0) ? x : Tensor());
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const std::int64_t features = gy.size(1);
    visit_float(op, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (ctx.needs_grad(0)) {
        gx[0] = empty({pattern.nnz()}, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), spmm_backward_values<T>, pattern.rows(), pattern.nnz(), 1,
                       features, pattern.offsets().data<std::int64_t>(),
                       pattern.columns().data<std::int32_t>(), gy.data<T>(), features,
                       ctx.saved(1).data<T>(), features, gx[0].mutable_data<T>());
      }
      if (ctx.needs_grad(1)) {
        const CsrPattern& reverse = pattern.transposed();
        gx[1] = empty({pattern.cols(), features}, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), spmm<T>, pattern.cols(), pattern.rows(), pattern.nnz(), 1,
                       features, reverse.offsets().data<std::int64_t>(),
                       reverse.columns().data<std::int32_t>(),
                       pattern.transposed_order().data<std::int64_t>(), ctx.saved(0).data<T>(),
                       gy.data<T>(), features, gx[1].mutable_data<T>(), features);
      }
    });
  }
};

}  // namespace

Tensor spmm(const CsrMatrix& a, const Tensor& x) {
  LIPGRAD_CHECK(a.defined(), "spmm: the sparse matrix is undefined");
  check_same_kind(op, {&a.values(), &x});
  LIPGRAD_CHECK(x.rank() == 2 && x.size(0) == a.cols(),
                "spmm: a sparse ({}, {}) needs a dense ({}, features), got {}", a.rows(), a.cols(),
                a.cols(), x.shape());
  return apply(Spmm{a.pattern()}, a.values(), x);
}

}  // namespace lipgrad
