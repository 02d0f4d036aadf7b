#include <lipgrad/ops/matmul.h>

#include <array>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/matmul.h>

namespace lipgrad {
namespace {

constexpr auto op = "matmul";

// The batch dimensions of a product, outermost first, neighbours merged where both operands step
// evenly through them. Strides count matrices; 0: the operand is shared along the dimension.
struct Batch {
  struct Dim {
    std::int64_t size, stride_a, stride_b;
  };
  std::array<Dim, Shape::max_rank> dims;
  int rank = 0;

  Batch(const Shape& c, const Shape& a, const Shape& b) {
    std::array<Dim, Shape::max_rank> all{};
    const int count = c.rank() - 2;
    std::int64_t step_a = 1, step_b = 1;
    for (int i = 0; i < count; ++i) {  // from the innermost
      const auto size_of = [&](const Shape& x) {
        const int dim = x.rank() - 3 - i;
        return dim >= 0 ? x[dim] : std::int64_t{1};
      };
      all[count - 1 - i] = {c[count - 1 - i], size_of(a) == 1 ? 0 : step_a,
                            size_of(b) == 1 ? 0 : step_b};
      step_a *= size_of(a);
      step_b *= size_of(b);
    }
    for (int i = 0; i < count; ++i) {
      const Dim& d = all[i];
      if (d.size == 1) continue;
      if (rank > 0 && dims[rank - 1].stride_a == d.size * d.stride_a &&
          dims[rank - 1].stride_b == d.size * d.stride_b) {
        dims[rank - 1] = {dims[rank - 1].size * d.size, d.stride_a, d.stride_b};
      } else {
        dims[rank++] = d;
      }
    }
  }
};

struct Sizes {
  std::int64_t m, n, k;
};

Sizes sizes_of(const Shape& a, const Shape& b, MatmulOptions options) {
  const int last_a = a.rank() - 1, last_b = b.rank() - 1;
  const std::int64_t inner_b = b[options.transpose_b ? last_b : last_b - 1];
  const Sizes s{a[options.transpose_a ? last_a : last_a - 1],
                b[options.transpose_b ? last_b - 1 : last_b],
                a[options.transpose_a ? last_a - 1 : last_a]};
  LIPGRAD_CHECK(s.k == inner_b, "matmul: inner sizes {} and {} differ: {}{} times {}{}", s.k,
                inner_b, a, options.transpose_a ? " transposed" : "", b,
                options.transpose_b ? " transposed" : "");
  return s;
}

Shape batch_of(const Shape& x) {
  return Shape(std::span<const std::int64_t>(x.begin(), x.rank() - 2));
}

Tensor product(const Tensor& a, const Tensor& b, MatmulOptions options) {
  const Sizes s = sizes_of(a.shape(), b.shape(), options);
  Shape shape = broadcast_shapes(op, batch_of(a.shape()), batch_of(b.shape()));
  LIPGRAD_CHECK(shape.rank() <= Shape::max_rank - 2, "matmul: more than {} dimensions",
                Shape::max_rank);
  shape = shape.inserted(shape.rank(), s.m);
  shape = shape.inserted(shape.rank(), s.n);
  Tensor c = empty(shape, a.dtype(), a.device());
  if (c.numel() == 0) return c;
  const Batch batch(shape, a.shape(), b.shape());
  const Batch::Dim inner = batch.rank > 0 ? batch.dims[batch.rank - 1] : Batch::Dim{1, 0, 0};
  visit_float(op, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* pa = a.data<T>();
    const T* pb = b.data<T>();
    T* pc = c.mutable_data<T>();
    const auto run = [&](std::int64_t at_a, std::int64_t at_b) {
      std::int64_t count = inner.size, m = s.m;
      if (inner.stride_b == 0 && inner.stride_a == 1 && !options.transpose_a) {
        m *= count;  // one b for all: one tall product
        count = 1;
      }
      LIPGRAD_LAUNCH(a.device(), matmul<T>, count, options.transpose_a, options.transpose_b, m, s.n,
                     s.k, pa + at_a * s.m * s.k, inner.stride_a * s.m * s.k, pb + at_b * s.k * s.n,
                     inner.stride_b * s.k * s.n, pc);
      pc += inner.size * s.m * s.n;
    };
    // The outer dimensions one after another.
    std::array<std::int64_t, Shape::max_rank> index{};
    std::int64_t at_a = 0, at_b = 0;
    for (;;) {
      run(at_a, at_b);
      int d = batch.rank - 2;
      for (; d >= 0; --d) {
        const Batch::Dim& dim = batch.dims[d];
        at_a += dim.stride_a;
        at_b += dim.stride_b;
        if (++index[d] < dim.size) break;
        at_a -= dim.size * dim.stride_a;
        at_b -= dim.size * dim.stride_b;
        index[d] = 0;
      }
      if (d < 0) break;
    }
  });
  return c;
}

std::int64_t rows_of(const Shape& x) { return x.leading(x.rank() - 1); }

// The same elements as one tall matrix.
Tensor as_matrix(const Tensor& x) { return x.alias({rows_of(x.shape()), x.size(-1)}); }

struct Matmul {
  static constexpr auto name = op;
  MatmulOptions options;

  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(ctx.needs_grad(1) ? in[0] : Tensor());
    ctx.save(ctx.needs_grad(0) ? in[1] : Tensor());
    ctx.save_value(in[1].shape());
    return product(in[0], in[1], options);
  }

  // Of the broadcast shape where an operand was shared: the engine adds up.
  void backward(Ctx& ctx, const Tensor& gc, Grads gx) const {
    const Tensor &a = ctx.saved(0), &b = ctx.saved(1);
    const bool ta = options.transpose_a, tb = options.transpose_b;
    if (ctx.needs_grad(0)) gx[0] = ta ? product(b, gc, {tb, true}) : product(gc, b, {false, !tb});
    if (!ctx.needs_grad(1)) return;
    const Shape& shape = ctx.value<Shape>(0);
    if (shape.leading(shape.rank() - 2) == 1 && !ta && rows_of(gc.shape()) == rows_of(a.shape())) {
      // b was shared by all of the batch: its gradient sums over the rows of all products at once.
      const Tensor rows = as_matrix(a), g = as_matrix(gc);
      const Tensor sum = tb ? product(g, rows, {true, false}) : product(rows, g, {true, false});
      gx[1] = sum.alias(shape);
    } else {
      gx[1] = tb ? product(gc, a, {true, ta}) : product(a, gc, {!ta, false});
    }
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options) {
  check_same_kind(op, {&a, &b});
  LIPGRAD_CHECK(
      a.rank() >= 2 && b.rank() >= 2,
      "matmul: expects at least two dimensions, got {} and {}; reshape a vector to (1, n) or "
      "(n, 1)",
      a.shape(), b.shape());
  return apply(Matmul{options}, a, b);
}

}  // namespace lipgrad
