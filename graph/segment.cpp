#include <lipgrad/graph/segment.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/graph/kernels/segment.h>

namespace lipgrad {
namespace {

void check_segments(const char* op, const Tensor& values, const Tensor& offsets) {
  LIPGRAD_CHECK(values.defined() && offsets.defined(), "{}: an input is undefined", op);
  LIPGRAD_CHECK(values.rank() >= 1, "{}: expects values with rows, got {}", op, values.shape());
  LIPGRAD_CHECK(offsets.dtype() == i64 && offsets.rank() == 1 && offsets.numel() >= 1,
                "{}: expects i64 offsets of shape (segments + 1), got {} {}", op, offsets.dtype(),
                offsets.shape());
  LIPGRAD_CHECK(offsets.device() == values.device(),
                "{}: values on {}, offsets on {}; move one with to()", op, values.device(),
                offsets.device());
  if (!offsets.device().is_cpu()) return;
  const std::int64_t* o = offsets.data<std::int64_t>();
  const std::int64_t segments = offsets.numel() - 1, rows = values.size(0);
  LIPGRAD_CHECK(o[0] == 0 && o[segments] == rows,
                "{}: offsets must go from 0 to the {} rows of values, got {} to {}", op, rows, o[0],
                o[segments]);
  for (std::int64_t s = 0; s < segments; ++s)
    LIPGRAD_CHECK(o[s] <= o[s + 1], "{}: offsets go down from {} to {} behind position {}", op,
                  o[s], o[s + 1], s);
}

std::int64_t segments_of(const Tensor& offsets) { return offsets.numel() - 1; }

template <bool kMean>
struct SegmentSum {  // values, offsets
  static constexpr auto name = kMean ? "segment_mean" : "segment_sum";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &offsets = in[1];
    check_segments(name, x, offsets);
    Tensor y = empty(x.shape().with(0, segments_of(offsets)), x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), segment_sum<T>, segments_of(offsets), x.size(0),
                     x.shape().trailing(1), offsets.data<std::int64_t>(), nullptr, kMean,
                     x.data<T>(), y.mutable_data<T>());
    });
    ctx.save(offsets);
    ctx.save_value(x.shape());
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor& offsets = ctx.saved(0);
    const Shape& shape = ctx.value<Shape>(0);
    gx[0] = empty(shape, gy.dtype(), gy.device());
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), segment_spread<T>, segments_of(offsets), shape[0],
                     shape.trailing(1), offsets.data<std::int64_t>(), kMean, gy.data<T>(),
                     gx[0].mutable_data<T>());
    });
  }
};

struct SegmentMax {  // values, offsets
  static constexpr auto name = "segment_max";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &offsets = in[1];
    check_segments(name, x, offsets);
    Tensor y = empty(x.shape().with(0, segments_of(offsets)), x.dtype(), x.device()), best;
    if (ctx.needs_grad(0)) best = empty(y.shape(), i64, x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), segment_max<T>, segments_of(offsets), x.size(0),
                     x.shape().trailing(1), offsets.data<std::int64_t>(), x.data<T>(),
                     y.mutable_data<T>(),
                     best.defined() ? best.mutable_data<std::int64_t>() : nullptr);
    });
    ctx.save(offsets);
    ctx.save(best);
    ctx.save_value(x.shape());
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &offsets = ctx.saved(0), &best = ctx.saved(1);
    const Shape& shape = ctx.value<Shape>(0);
    gx[0] = empty(shape, gy.dtype(), gy.device());
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), segment_max_backward<T>, segments_of(offsets), shape[0],
                     shape.trailing(1), offsets.data<std::int64_t>(), best.data<std::int64_t>(),
                     gy.data<T>(), gx[0].mutable_data<T>());
    });
  }
};

struct SegmentLogSumExp {  // values, offsets
  static constexpr auto name = "segment_logsumexp";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &offsets = in[1];
    check_segments(name, x, offsets);
    Tensor y = empty(x.shape().with(0, segments_of(offsets)), x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), segment_logsumexp<T>, segments_of(offsets), x.size(0),
                     x.shape().trailing(1), offsets.data<std::int64_t>(), x.data<T>(),
                     y.mutable_data<T>());
    });
    ctx.save(offsets);
    ctx.save(x);
    ctx.save(y);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &offsets = ctx.saved(0), &x = ctx.saved(1), &y = ctx.saved(2);
    gx[0] = empty_like(x);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), segment_logsumexp_backward<T>, segments_of(offsets), x.size(0),
                     x.shape().trailing(1), offsets.data<std::int64_t>(), x.data<T>(), y.data<T>(),
                     gy.data<T>(), gx[0].mutable_data<T>());
    });
  }
};

}  // namespace

Tensor segment_sum(const Tensor& values, const Tensor& offsets) {
  return apply(SegmentSum<false>{}, values, offsets);
}
Tensor segment_mean(const Tensor& values, const Tensor& offsets) {
  return apply(SegmentSum<true>{}, values, offsets);
}
Tensor segment_max(const Tensor& values, const Tensor& offsets) {
  return apply(SegmentMax{}, values, offsets);
}
Tensor segment_logsumexp(const Tensor& values, const Tensor& offsets) {
  return apply(SegmentLogSumExp{}, values, offsets);
}

}  // namespace lipgrad
