#include <lipgrad/ops/reduce.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/reduce.h>
#include <lipgrad/ops/kernels/shape.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

// One run of neighbouring dimensions is reduced: x read as (outer, n, inner), the result as
// (outer, inner) of shape `result`.
struct Span {
  std::int64_t outer, n, inner;
  Shape result;
};

// y(outer, n, inner) = small(outer, inner), repeated.
Tensor repeat(const Span& s, const Tensor& small, const Shape& shape) {
  Tensor y = empty(shape, small.dtype(), small.device());
  StridedBox box;
  box.rank = 3;
  const std::int64_t size[] = {s.outer, s.n, s.inner};
  const std::int64_t to[] = {s.n * s.inner, s.inner, 1}, from[] = {s.inner, 0, 1};
  for (int d = 0; d < 3; ++d) {
    box.size[d] = size[d];
    box.to[d] = to[d];
    box.from[d] = from[d];
  }
  LIPGRAD_LAUNCH(y.device(), copy_strided, box, size_of(y.dtype()), y.mutable_raw_data(),
                 small.raw_data());
  return y;
}

Tensor summed(const char* name, const Span& s, const Tensor& x, double scale) {
  Tensor y = empty(s.result, x.dtype(), x.device());
  visit_float(name, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), sum, s.outer, s.n, s.inner, scale, x.data<T>(), y.mutable_data<T>());
  });
  return y;
}

struct Sum {
  static constexpr auto name = "sum";
  Span s;
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].shape());
    return summed(name, s, in[0], 1);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = repeat(s, gy, ctx.value<Shape>(0));
  }
};

struct Mean {
  static constexpr auto name = "mean";
  Span s;
  Tensor forward(Ctx& ctx, Inputs in) const {
    LIPGRAD_CHECK(s.n > 0 || s.result.numel() == 0, "mean: nothing to average in {}",
                  in[0].shape());
    ctx.save_value(in[0].shape());
    return summed(name, s, in[0], 1.0 / static_cast<double>(s.n));
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    // A sum over a dimension of one element, with a scale.
    const Span one{gy.numel(), 1, 1, gy.shape()};
    gx[0] = repeat(s, summed(name, one, gy, 1.0 / static_cast<double>(s.n)), ctx.value<Shape>(0));
  }
};

struct Var {
  static constexpr auto name = "var";
  Span s;
  double correction;
  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    LIPGRAD_CHECK(static_cast<double>(s.n) > correction || s.result.numel() == 0,
                  "var: {} elements each in {} are too few for correction {}", s.n, x.shape(),
                  correction);
    Tensor y = empty(s.result, x.dtype(), x.device()), mean = empty_like(y);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), var, s.outer, s.n, s.inner, correction, x.data<T>(),
                     mean.mutable_data<T>(), y.mutable_data<T>());
    });
    ctx.save(x);
    ctx.save(mean);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &mean = ctx.saved(1);
    Tensor g = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), var_backward, s.outer, s.n, s.inner, correction, x.data<T>(),
                     mean.data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

// Values and indices of the largest elements.
Tensor largest(const char* name, const Span& s, const Tensor& x, Tensor& index) {
  LIPGRAD_CHECK(s.n > 0 || s.result.numel() == 0, "{}: nothing to choose from in {}", name,
                x.shape());
  Tensor y = empty(s.result, x.dtype(), x.device());
  index = empty(s.result, i64, x.device());
  visit_float(name, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    LIPGRAD_LAUNCH(x.device(), max, s.outer, s.n, s.inner, x.data<T>(), y.mutable_data<T>(),
                   index.mutable_data<std::int64_t>());
  });
  return y;
}

struct Max {
  static constexpr auto name = "max";
  Span s;
  Tensor forward(Ctx& ctx, Inputs in) const {
    Tensor index, y = largest(name, s, in[0], index);
    ctx.save(index);
    ctx.save_value(in[0].shape());
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    Tensor g = empty(ctx.value<Shape>(0), gy.dtype(), gy.device());
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), max_backward, s.outer, s.n, s.inner,
                     ctx.saved(0).data<std::int64_t>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

struct LogSumExp {
  static constexpr auto name = "logsumexp";
  Span s;
  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    Tensor y = empty(s.result, x.dtype(), x.device());
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), logsumexp, s.outer, s.n, s.inner, x.data<T>(),
                     y.mutable_data<T>());
    });
    ctx.save(x);
    ctx.save(y);
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    const Tensor &x = ctx.saved(0), &y = ctx.saved(1);
    Tensor g = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), logsumexp_backward, s.outer, s.n, s.inner, x.data<T>(),
                     y.data<T>(), gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

// The dimensions to reduce, checked, as flags.
struct Flags {
  bool reduced[Shape::max_rank] = {};

  Flags(const char* op, const Tensor& x, Dims dims) {
    check_same_kind(op, {&x});
    for (int dim : dims) {
      const int d = x.shape().normalize_dim(dim, op);
      LIPGRAD_CHECK(!reduced[d], "{}: dim {} is given twice for {}", op, dim, x.shape());
      reduced[d] = true;
    }
  }

  // The last run of reduced dimensions that matters (those of size 1 count as either kind), with
  // the shape that is left when it is reduced to size 1. False if none has another size than 1.
  bool last_run(const Shape& shape, Span& s) const {
    int end = shape.rank();
    while (end > 0 && (!reduced[end - 1] || shape[end - 1] == 1)) --end;
    if (end == 0) return false;
    int begin = end;
    while (begin > 0 && (reduced[begin - 1] || shape[begin - 1] == 1)) --begin;
    s.outer = shape.leading(begin);
    s.inner = shape.trailing(end);
    s.n = 1;
    s.result = shape;
    for (int d = begin; d < end; ++d) {
      s.n *= shape[d];
      s.result = s.result.with(d, 1);
    }
    return true;
  }

  // What the whole reduction leaves.
  Shape result(const Shape& shape, bool keepdim) const {
    Shape left = shape;
    for (int d = shape.rank(); d-- > 0;)
      if (reduced[d]) left = keepdim ? left.with(d, 1) : left.without(d);
    return left;
  }
};

// Reduces run after run, from the last one on: for reductions of which that is true.
template <class Op>
Tensor by_runs(const Tensor& x, Dims dims, bool keepdim) {
  const Flags flags(Op::name, x, dims);
  const Shape result = flags.result(x.shape(), keepdim);
  Span s, next;
  Tensor y = x;
  bool more = flags.last_run(x.shape(), s);
  if (!more) s = {x.numel(), 1, 1, result};  // every sum has one term
  do {
    more = more && flags.last_run(s.result, next);
    if (!more) s.result = result;
    y = apply(Op{s}, y);
    s = next;
  } while (more);
  return y;
}

// The dimensions 0 ... rank - 1.
struct All {
  int dim[Shape::max_rank];
  int rank;
  explicit All(const Tensor& x) : rank(x.rank()) {
    for (int d = 0; d < rank; ++d) dim[d] = d;
  }
  operator Dims() const { return Dims(dim, rank); }
};

}  // namespace

Tensor sum(const Tensor& x) { return by_runs<Sum>(x, All(x), false); }
Tensor sum(const Tensor& x, Dims dims, bool keepdim) { return by_runs<Sum>(x, dims, keepdim); }
Tensor mean(const Tensor& x) { return by_runs<Mean>(x, All(x), false); }
Tensor mean(const Tensor& x, Dims dims, bool keepdim) { return by_runs<Mean>(x, dims, keepdim); }
Tensor max(const Tensor& x) { return by_runs<Max>(x, All(x), false); }
Tensor max(const Tensor& x, Dims dims, bool keepdim) { return by_runs<Max>(x, dims, keepdim); }
Tensor logsumexp(const Tensor& x) { return by_runs<LogSumExp>(x, All(x), false); }
Tensor logsumexp(const Tensor& x, Dims dims, bool keepdim) {
  return by_runs<LogSumExp>(x, dims, keepdim);
}

Tensor var(const Tensor& x, double correction) { return var(x, All(x), false, correction); }
Tensor var(const Tensor& x, Dims dims, bool keepdim, double correction) {
  const Flags flags(Var::name, x, dims);
  const Shape result = flags.result(x.shape(), keepdim);
  Span s, rest;
  if (!flags.last_run(x.shape(), s)) s = {x.numel(), 1, 1, result};
  if (!flags.last_run(s.result, rest)) {
    s.result = result;
    return apply(Var{s, correction}, x);
  }
  // Several runs: the reduced dimensions are brought to the back.
  int order[Shape::max_rank], kept = 0, last = x.rank();
  for (int d = 0; d < x.rank(); ++d)
    if (!flags.reduced[d]) order[kept++] = d;
  const std::int64_t n = [&] {
    std::int64_t product = 1;
    for (int d = x.rank(); d-- > 0;)
      if (flags.reduced[d]) {
        order[--last] = d;
        product *= x.shape()[d];
      }
    return product;
  }();
  return apply(Var{{result.numel(), n, 1, result}, correction},
               permute(x, std::span<const int>(order, x.rank())));
}

Tensor argmax(const Tensor& x, int dim) {
  check_same_kind("argmax", {&x});
  const int d = x.shape().normalize_dim(dim, "argmax");
  const Span s{x.shape().leading(d), x.shape()[d], x.shape().trailing(d + 1), x.shape().without(d)};
  Tensor index;
  largest("argmax", s, x, index);
  return index;
}

}  // namespace lipgrad
