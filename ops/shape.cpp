#include <lipgrad/ops/shape.h>

#include <algorithm>
#include <numeric>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/shape.h>

namespace lipgrad {
namespace {

struct Strides {
  std::int64_t step[Shape::max_rank] = {};
};

Strides strides_of(const Shape& shape) {
  Strides s;
  std::int64_t step = 1;
  for (int i = shape.rank(); i-- > 0; step *= shape[i]) s.step[i] = step;
  return s;
}

// Copies `sizes` elements between to (from its element `to_offset` on, at distances to_step) and
// from.
void copy_box(Tensor& to, std::int64_t to_offset, const Strides& to_step, const Tensor& from,
              std::int64_t from_offset, const Strides& from_step, const Shape& sizes) {
  StridedBox box;
  box.rank = sizes.rank();
  for (int i = 0; i < sizes.rank(); ++i) {
    box.size[i] = sizes[i];
    box.to[i] = to_step.step[i];
    box.from[i] = from_step.step[i];
  }
  const std::int64_t element = size_of(to.dtype());
  LIPGRAD_LAUNCH(to.device(), copy_strided, box, element,
                 static_cast<char*>(to.mutable_raw_data()) + to_offset * element,
                 static_cast<const char*>(from.raw_data()) + from_offset * element);
}

void check_defined(const char* op, const Tensor& x) {
  LIPGRAD_CHECK(x.defined(), "{}: the input is undefined", op);
}

struct Reshape {
  static constexpr auto name = "reshape";
  Shape shape;
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].shape());
    return in[0].alias(shape);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = gy.alias(ctx.value<Shape>(0));
  }
};

struct Order {
  int dim[Shape::max_rank] = {};
};

Tensor permuted(const Tensor& x, const Order& order) {
  const int rank = x.rank();
  const Strides from = strides_of(x.shape());
  std::int64_t sizes[Shape::max_rank];
  Strides step;
  for (int i = 0; i < rank; ++i) {
    sizes[i] = x.shape()[order.dim[i]];
    step.step[i] = from.step[order.dim[i]];
  }
  Tensor y = empty(Shape(std::span<const std::int64_t>(sizes, rank)), x.dtype(), x.device());
  copy_box(y, 0, strides_of(y.shape()), x, 0, step, y.shape());
  return y;
}

struct Permute {
  static constexpr auto name = "permute";
  Order order;
  Tensor forward(Ctx&, Inputs in) const { return permuted(in[0], order); }
  void backward(Ctx&, const Tensor& gy, Grads gx) const {
    Order inverse;
    for (int i = 0; i < gy.rank(); ++i) inverse.dim[order.dim[i]] = i;
    gx[0] = permuted(gy, inverse);
  }
};

struct BroadcastTo {
  static constexpr auto name = "broadcast_to";
  Shape shape;
  Tensor forward(Ctx&, Inputs in) const {
    Tensor y = empty(shape, in[0].dtype(), in[0].device());
    const Strides own = strides_of(in[0].shape());
    Strides step;
    const int added = shape.rank() - in[0].rank();
    for (int i = added; i < shape.rank(); ++i)
      step.step[i] = in[0].shape()[i - added] == 1 ? 0 : own.step[i - added];
    copy_box(y, 0, strides_of(shape), in[0], 0, step, shape);
    return y;
  }
  void backward(Ctx&, const Tensor& gy, Grads gx) const { gx[0] = gy; }  // the engine sums it back
};

// Part [begin, begin + size) of a dimension: an alias if it lies in one piece, else a copy.
Tensor part(const Tensor& x, int dim, std::int64_t begin, std::int64_t size) {
  const Shape shape = x.shape().with(dim, size);
  const Strides step = strides_of(x.shape());
  if (x.shape().leading(dim) == 1)
    return x.alias(shape, shape.numel() == 0 ? 0 : begin * step.step[dim]);
  Tensor y = empty(shape, x.dtype(), x.device());
  copy_box(y, 0, strides_of(shape), x, begin * step.step[dim], step, shape);
  return y;
}

void put_part(Tensor& y, int dim, std::int64_t begin, const Tensor& x) {
  const Strides step = strides_of(y.shape());
  copy_box(y, begin * step.step[dim], step, x, 0, strides_of(x.shape()), x.shape());
}

struct Slice {
  static constexpr auto name = "slice";
  int dim;
  std::int64_t begin, size;
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].shape());
    return part(in[0], dim, begin, size);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = zeros(ctx.value<Shape>(0), gy.dtype(), gy.device());
    put_part(gx[0], dim, begin, gy);
  }
};

struct Split {
  static constexpr auto name = "split";
  int dim;
  std::vector<std::int64_t> sizes;
  std::vector<Tensor> forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].shape());
    ctx.save_value(in[0].dtype());
    ctx.save_value(in[0].device());
    std::vector<Tensor> pieces;
    std::int64_t begin = 0;
    for (std::int64_t size : sizes) {
      pieces.push_back(part(in[0], dim, begin, size));
      begin += size;
    }
    return pieces;
  }
  void backward(Ctx& ctx, Inputs gy, Grads gx) const {
    gx[0] = zeros(ctx.value<Shape>(0), ctx.value<DType>(1), ctx.value<Device>(2));
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (gy[i].defined()) put_part(gx[0], dim, begin, gy[i]);
      begin += sizes[i];
    }
  }
};

struct Concat {
  static constexpr auto name = "concat";
  int dim;
  std::vector<std::int64_t> sizes;
  Shape shape;
  Tensor forward(Ctx&, Inputs in) const {
    Tensor y = empty(shape, in[0].dtype(), in[0].device());
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      put_part(y, dim, begin, in[i]);
      begin += sizes[i];
    }
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (ctx.needs_grad(i)) gx[i] = part(gy, dim, begin, sizes[i]);
      begin += sizes[i];
    }
  }
};

struct Cast {
  static constexpr auto name = "cast";
  DType dtype;
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].dtype());
    return in[0].detach().to(dtype);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const { gx[0] = gy.to(ctx.value<DType>(0)); }
};

struct Transfer {
  static constexpr auto name = "transfer";
  Device device;
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].device());
    return in[0].detach().to(device);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const { gx[0] = gy.to(ctx.value<Device>(0)); }
};

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", x);
  LIPGRAD_CHECK(shape.numel() == x.numel(), "reshape: {} has {} elements, {} has {}", x.shape(),
                x.numel(), shape, shape.numel());
  return apply(Reshape{shape}, x);
}

Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  check_defined("reshape", x);
  std::int64_t known = 1;
  int unknown = -1, i = 0;
  for (std::int64_t size : sizes) {
    if (size == -1) {
      LIPGRAD_CHECK(unknown < 0, "reshape: sizes {} and {} are both -1", unknown, i);
      unknown = i;
    } else {
      LIPGRAD_CHECK(size >= 0 && !__builtin_mul_overflow(known, size, &known),
                    "reshape: size {} of dimension {} is not possible", size, i);
    }
    ++i;
  }
  std::vector<std::int64_t> all(sizes);
  if (unknown >= 0) {
    LIPGRAD_CHECK(known > 0 && x.numel() % known == 0,
                  "reshape: the {} elements of {} do not divide into pieces of {}", x.numel(),
                  x.shape(), known);
    all[unknown] = x.numel() / known;
  }
  return reshape(x, Shape(std::span<const std::int64_t>(all)));
}

Tensor flatten(const Tensor& x, int first, int last) {
  check_defined("flatten", x);
  if (x.rank() == 0) return reshape(x, Shape{1});
  const int from = x.shape().normalize_dim(first, "flatten"),
            to = x.shape().normalize_dim(last, "flatten");
  LIPGRAD_CHECK(from <= to, "flatten: dim {} comes after dim {} in {}", first, last, x.shape());
  Shape shape = x.shape();
  for (int i = from; i < to; ++i) {
    const std::int64_t product = shape[from] * shape[from + 1];
    shape = shape.without(from + 1).with(from, product);
  }
  return reshape(x, shape);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  check_defined("unsqueeze", x);
  const int rank = x.rank() + 1;
  LIPGRAD_CHECK(dim >= -rank && dim < rank && rank <= Shape::max_rank,
                "unsqueeze: dim {} out of range for {}", dim, x.shape());
  return reshape(x, x.shape().inserted(dim < 0 ? dim + rank : dim, 1));
}

Tensor squeeze(const Tensor& x, int dim) {
  check_defined("squeeze", x);
  const int at = x.shape().normalize_dim(dim, "squeeze");
  LIPGRAD_CHECK(x.shape()[at] == 1, "squeeze: dim {} of {} has size {}, not 1", dim, x.shape(),
                x.shape()[at]);
  return reshape(x, x.shape().without(at));
}

Tensor permute(const Tensor& x, std::span<const int> order) {
  check_defined("permute", x);
  LIPGRAD_CHECK(static_cast<int>(order.size()) == x.rank(), "permute: {} dimensions given for {}",
                order.size(), x.shape());
  Order dims;
  bool seen[Shape::max_rank] = {};
  for (int i = 0; i < x.rank(); ++i) {
    dims.dim[i] = x.shape().normalize_dim(order[i], "permute");
    LIPGRAD_CHECK(!std::exchange(seen[dims.dim[i]], true), "permute: dim {} is given twice for {}",
                  order[i], x.shape());
  }
  return apply(Permute{dims}, x);
}

Tensor transpose(const Tensor& x, int a, int b) {
  check_defined("transpose", x);
  const int p = x.shape().normalize_dim(a, "transpose"),
            q = x.shape().normalize_dim(b, "transpose");
  int order[Shape::max_rank];
  std::iota(order, order + x.rank(), 0);
  std::swap(order[p], order[q]);
  return permute(x, std::span<const int>(order, x.rank()));
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  check_defined("broadcast_to", x);
  LIPGRAD_CHECK(broadcasts_to(x.shape(), shape), "broadcast_to: {} does not broadcast to {}",
                x.shape(), shape);
  return apply(BroadcastTo{shape}, x);
}

Tensor concat(std::span<const Tensor> tensors, int dim) {
  LIPGRAD_CHECK(!tensors.empty(), "concat: no tensors given");
  const Tensor& first = tensors[0];
  check_defined("concat", first);
  Concat op;
  op.dim = first.shape().normalize_dim(dim, "concat");
  std::int64_t total = 0;
  for (const Tensor& x : tensors) {
    check_same_kind("concat", {&first, &x});
    LIPGRAD_CHECK(
        x.rank() == first.rank() && x.shape().with(op.dim, 1) == first.shape().with(op.dim, 1),
        "concat: shapes {} and {} differ in more than dim {}", first.shape(), x.shape(), dim);
    op.sizes.push_back(x.shape()[op.dim]);
    total += x.shape()[op.dim];
  }
  op.shape = first.shape().with(op.dim, total);
  return apply(std::move(op), Inputs(tensors));
}

Tensor stack(std::span<const Tensor> tensors, int dim) {
  LIPGRAD_CHECK(!tensors.empty(), "stack: no tensors given");
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    LIPGRAD_CHECK(x.defined() && x.shape() == tensors[0].shape(), "stack: shapes {} and {} differ",
                  tensors[0].shape(), x.shape());
    rows.push_back(unsqueeze(x, dim));
  }
  return concat(rows, dim);
}

Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end) {
  check_defined("slice", x);
  const int at = x.shape().normalize_dim(dim, "slice");
  const std::int64_t size = x.shape()[at], from = begin < 0 ? begin + size : begin,
                     to = end < 0 ? end + size : end;
  LIPGRAD_CHECK(0 <= from && from <= to && to <= size, "slice: [{}, {}) is no part of dim {} of {}",
                begin, end, dim, x.shape());
  return apply(Slice{at, from, to - from}, x);
}

std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim) {
  check_defined("split", x);
  const int at = x.shape().normalize_dim(dim, "split");
  std::int64_t rest = x.shape()[at];
  for (std::int64_t size : sizes) {
    LIPGRAD_CHECK(size >= 0 && size <= rest, "split: the sizes ({}) do not add up to dim {} of {}",
                  fmt::join(sizes, ", "), dim, x.shape());
    rest -= size;
  }
  LIPGRAD_CHECK(rest == 0 && !sizes.empty(), "split: the sizes ({}) do not add up to dim {} of {}",
                fmt::join(sizes, ", "), dim, x.shape());
  return apply(Split{at, {sizes.begin(), sizes.end()}}, x);
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  if (!is_floating(x.dtype()) || !is_floating(dtype)) {
    LIPGRAD_CHECK(!Tape::is_recorded(x),
                  "cast: tensor {} has a gradient that {} cannot carry; detach() it first",
                  x.shape(), dtype);
    return x.detach().to(dtype);
  }
  return apply(Cast{dtype}, x);
}

Tensor transfer(const Tensor& x, Device device) {
  check_defined("transfer", x);
  return x.device() == device ? x : apply(Transfer{device}, x);
}

}  // namespace lipgrad
