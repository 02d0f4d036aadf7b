#include <lipgrad/ops/index.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/index.h>

namespace lipgrad {
namespace {

template <class F>
decltype(auto) visit_index(const Tensor& index, F&& f) {
  if (index.dtype() == i32) return f(TypeTag<std::int32_t>{});
  return f(TypeTag<std::int64_t>{});
}

// The values of the indices are checked here on the CPU. On CUDA devices nothing is read for that:
// the kernels report what is out of range.
void check_index(const char* op, const Tensor& x, const Tensor& index, std::int64_t rows) {
  LIPGRAD_CHECK(x.defined() && index.defined(), "{}: an input is undefined", op);
  LIPGRAD_CHECK(index.dtype() == i32 || index.dtype() == i64,
                "{}: expects an i32 or i64 index, got {}", op, index.dtype());
  LIPGRAD_CHECK(index.device() == x.device(), "{}: input on {}, index on {}; move one with to()",
                op, x.device(), index.device());
  if (!index.device().is_cpu()) return;
  visit_index(index, [&](auto tag) {
    using Index = typename decltype(tag)::type;
    const Index* values = index.data<Index>();
    const std::int64_t at = cpu::find_out_of_range(index.numel(), rows, values);
    if (at >= 0) fail("{}: index {} at position {} is not in [0, {})", op, values[at], at, rows);
  });
}

Tensor gathered(const Tensor& x, const Tensor& index, const Shape& shape) {
  Tensor y = empty(shape, x.dtype(), x.device());
  const std::int64_t rows = x.size(0), count = index.numel(), cols = x.shape().trailing(1);
  visit_dtype(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_index(index, [&](auto index_tag) {
      using Index = typename decltype(index_tag)::type;
      LIPGRAD_LAUNCH(x.device(), gather_rows, rows, count, cols, x.data<T>(), index.data<Index>(),
                     y.mutable_data<T>());
    });
  });
  return y;
}

Tensor scattered(const char* op, const Tensor& x, const Tensor& index, const Shape& shape) {
  Tensor y = empty(shape, x.dtype(), x.device());
  const std::int64_t rows = shape[0], count = index.numel(), cols = shape.trailing(1);
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_index(index, [&](auto index_tag) {
      using Index = typename decltype(index_tag)::type;
      LIPGRAD_LAUNCH(x.device(), scatter_add_rows, rows, count, cols, x.data<T>(),
                     index.data<Index>(), y.mutable_data<T>());
    });
  });
  return y;
}

// The sizes of `front`, then those of `back` from dimension `from` on.
Shape joined(const char* op, const Shape& front, const Shape& back, int from) {
  std::int64_t sizes[2 * Shape::max_rank];
  int rank = 0;
  for (std::int64_t size : front) sizes[rank++] = size;
  for (int d = from; d < back.rank(); ++d) sizes[rank++] = back[d];
  LIPGRAD_CHECK(rank <= Shape::max_rank, "{}: the result of {} and {} would have {} dimensions", op,
                front, back, rank);
  return Shape(std::span<const std::int64_t>(sizes, rank));
}

template <bool kEmbedding>
struct Gather {  // x, index
  static constexpr auto name = kEmbedding ? "embedding" : "gather";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &index = in[1];
    LIPGRAD_CHECK(x.defined() && x.rank() >= 1, "{}: expects a tensor with rows, got {}", name,
                  x.str());
    check_index(name, x, index, x.size(0));
    ctx.save(index);
    ctx.save_value(x.shape());
    return gathered(x, index, joined(name, index.shape(), x.shape(), 1));
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = scattered(name, gy, ctx.saved(0), ctx.value<Shape>(0));
  }
};

struct ScatterAdd {  // x, index
  static constexpr auto name = "scatter_add";
  std::int64_t rows;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &index = in[1];
    LIPGRAD_CHECK(rows >= 0, "scatter_add: rows must be >= 0, got {}", rows);
    check_index(name, x, index, rows);
    bool fits = index.rank() <= x.rank();
    for (int d = 0; fits && d < index.rank(); ++d) fits = index.shape()[d] == x.shape()[d];
    LIPGRAD_CHECK(fits, "scatter_add: the index {} is not the leading part of {}", index.shape(),
                  x.shape());
    ctx.save(index);
    ctx.save_value(x.shape());
    return scattered(name, x, index, joined(name, Shape({rows}), x.shape(), index.rank()));
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = gathered(gy, ctx.saved(0), ctx.value<Shape>(0));
  }
};

}  // namespace

Tensor gather(const Tensor& x, const Tensor& index) { return apply(Gather<false>{}, x, index); }
Tensor scatter_add(const Tensor& x, const Tensor& index, std::int64_t rows) {
  return apply(ScatterAdd{rows}, x, index);
}
Tensor embedding(const Tensor& table, const Tensor& index) {
  return apply(Gather<true>{}, table, index);
}

}  // namespace lipgrad
