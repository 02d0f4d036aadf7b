#include <lipgrad/ops/conv2d.h>

#include <algorithm>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/optional_data.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/kernels/conv2d.h>
#include <lipgrad/ops/kernels/depthwise_conv.h>
#include <lipgrad/ops/kernels/linear.h>
#include <lipgrad/ops/kernels/matmul.h>
#include <lipgrad/ops/kernels/shape.h>
#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {
namespace {

constexpr auto op = "conv2d";
constexpr std::int64_t column_elements = 1 << 20;  // that are copied side by side at a time

// gbias(cols) = the sums over the rows of gy(rows, cols).
template <class T>
Tensor bias_gradient(const Tensor& gy, std::int64_t cols) {
  Tensor g = empty({cols}, gy.dtype(), gy.device());
  LIPGRAD_LAUNCH(gy.device(), linear_backward_bias<T>, Activation::identity, 0.0, gy.numel() / cols,
                 cols, nullptr, gy.data<T>(), nullptr, g.mutable_data<T>());
  return g;
}

struct DepthwiseConv {  // x, weight, bias
  static constexpr auto name = op;
  ConvShape s;

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &weight = in[1], &bias = in[2];
    Tensor y = empty({s.batch, s.out_height, s.out_width, s.channels}, x.dtype(), x.device());
    visit_float(op, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), depthwise_conv<T>, s, x.data<T>(), weight.data<T>(),
                     data_or_null<T>(bias), y.mutable_data<T>());
    });
    ctx.save(ctx.needs_grad(1) ? x : Tensor());
    ctx.save(ctx.needs_grad(0) ? weight : Tensor());
    return y;
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    visit_float(op, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (ctx.needs_grad(0)) {
        gx[0] = empty({s.batch, s.height, s.width, s.channels}, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), depthwise_conv_backward_input<T>, s, ctx.saved(1).data<T>(),
                       gy.data<T>(), gx[0].mutable_data<T>());
      }
      if (ctx.needs_grad(1)) {
        gx[1] = empty({s.channels, 1, s.kernel_height, s.kernel_width}, gy.dtype(), gy.device());
        LIPGRAD_LAUNCH(gy.device(), depthwise_conv_backward_weight<T>, s, ctx.saved(0).data<T>(),
                       gy.data<T>(), gx[1].mutable_data<T>());
      }
      if (ctx.needs_grad(2)) gx[2] = bias_gradient<T>(gy, s.channels);
    });
  }
};

// Any convolution, by groups and blocks of outputs whose columns have at most column_elements
// elements (or are one row of outputs).
struct Conv {  // x, weight, bias
  static constexpr auto name = op;
  ConvShape s;
  std::int64_t groups, out;

  std::int64_t in_each() const { return s.channels / groups; }
  std::int64_t out_each() const { return out / groups; }
  std::int64_t inner() const { return s.taps() * in_each(); }
  std::int64_t rows_at_once() const {
    return std::max<std::int64_t>(1, column_elements / (s.out_width * inner()));
  }
  // Images at once, 0 where not even the outputs of one can be.
  std::int64_t images_at_once() const { return rows_at_once() / s.out_height; }

  // Calls f(block) for all outputs.
  template <class F>
  void each_block(F f) const {
    if (const std::int64_t n = images_at_once()) {
      for (std::int64_t b = 0; b < s.batch; b += n)
        f(ConvBlock{b, std::min(n, s.batch - b), 0, s.out_height, 0, in_each()});
      return;
    }
    const std::int64_t rows = rows_at_once();
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t i = 0; i < s.out_height; i += rows)
        f(ConvBlock{b, 1, i, std::min(rows, s.out_height - i), 0, in_each()});
  }
  // Calls f(block, first row, number of rows) for all rows of pixels, with the outputs that read
  // them.
  template <class F>
  void each_band(F f) const {
    if (const std::int64_t n = images_at_once()) {
      for (std::int64_t b = 0; b < s.batch; b += n)
        f(ConvBlock{b, std::min(n, s.batch - b), 0, s.out_height, 0, in_each()}, std::int64_t{0},
          s.height);
      return;
    }
    const std::int64_t rows = rows_at_once() * s.stride_down;
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t y = 0; y < s.height; y += rows) {
        const std::int64_t count = std::min(rows, s.height - y),
                           above = y + s.pad_down - s.kernel_height + 1;
        const std::int64_t first = above <= 0 ? 0 : (above + s.stride_down - 1) / s.stride_down;
        const std::int64_t last =
            std::min(s.out_height - 1, (y + count - 1 + s.pad_down) / s.stride_down);
        f(ConvBlock{b, 1, first, std::max<std::int64_t>(0, last + 1 - first), 0, in_each()}, y,
          count);
      }
  }

  // The outputs of a block: a tensor (outputs, out) that shares y's memory.
  Tensor part(const Tensor& y, const ConvBlock& b) const {
    return y.alias({b.outputs(s), out},
                   (b.first_image * s.out_height + b.first_row) * s.out_width * out);
  }
  // Copies group g's columns between rows(n, out) and those alone (n, out / groups).
  void copy_group(std::int64_t g, bool gather, const Tensor& from, Tensor& to) const {
    const std::int64_t rows = (gather ? to : from).size(0), size = size_of(from.dtype());
    StridedBox box;
    box.rank = 2;
    box.size[0] = rows;
    box.size[1] = out_each();
    box.from[0] = gather ? out : out_each();
    box.to[0] = gather ? out_each() : out;
    box.from[1] = box.to[1] = 1;
    const std::int64_t skip = g * out_each() * size;
    LIPGRAD_LAUNCH(from.device(), copy_strided, box, size,
                   static_cast<char*>(to.mutable_raw_data()) + (gather ? 0 : skip),
                   static_cast<const char*>(from.raw_data()) + (gather ? skip : 0));
  }
  Tensor group_of(const Tensor& rows, std::int64_t g) const {
    if (groups == 1) return rows;
    Tensor one = empty({rows.size(0), out_each()}, rows.dtype(), rows.device());
    copy_group(g, true, rows, one);
    return one;
  }

  template <class T>
  Tensor columns(const Tensor& x, ConvBlock b, std::int64_t g) const {
    Tensor c = empty({b.outputs(s), inner()}, x.dtype(), x.device());
    b.first_channel = g * in_each();
    LIPGRAD_LAUNCH(x.device(), conv_columns<T>, s, b, x.data<T>(), c.mutable_data<T>());
    return c;
  }

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor &x = in[0], &bias = in[2];
    const Tensor weight = permute(in[1].detach(), {0, 2, 3, 1});  // the order of columns
    Tensor y = empty({s.batch, s.out_height, s.out_width, out}, x.dtype(), x.device());
    visit_float(op, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      each_block([&](const ConvBlock& b) {
        Tensor rows = part(y, b);
        for (std::int64_t g = 0; g < groups; ++g) {
          const Tensor c = columns<T>(x, b, g);
          Tensor z = groups == 1 ? rows : empty({c.size(0), out_each()}, x.dtype(), x.device());
          const T* of_group = bias.defined() ? bias.data<T>() + g * out_each() : nullptr;
          LIPGRAD_LAUNCH(x.device(), linear<T>, Activation::identity, 0.0, c.size(0), inner(),
                         out_each(), c.data<T>(), weight.data<T>() + g * out_each() * inner(),
                         of_group, nullptr, z.mutable_data<T>());
          if (groups > 1) copy_group(g, false, z, rows);
        }
      });
    });
    ctx.save(ctx.needs_grad(1) ? x : Tensor());
    ctx.save(ctx.needs_grad(0) ? weight : Tensor());
    return y;
  }

  template <class T>
  Tensor input_gradient(const Tensor& weight, const Tensor& gy) const {
    Tensor gx = empty({s.batch, s.height, s.width, s.channels}, gy.dtype(), gy.device());
    each_band([&](ConvBlock b, std::int64_t top, std::int64_t height) {
      const Tensor rows = part(gy, b);
      Tensor c = empty({b.outputs(s), inner()}, gy.dtype(), gy.device());
      for (std::int64_t g = 0; g < groups; ++g) {
        const Tensor z = group_of(rows, g);
        LIPGRAD_LAUNCH(gy.device(), matmul<T>, 1, false, false, c.size(0), inner(), out_each(),
                       z.data<T>(), 0, weight.data<T>() + g * out_each() * inner(), 0,
                       c.mutable_data<T>());
        b.first_channel = g * in_each();
        LIPGRAD_LAUNCH(gy.device(), conv_columns_backward<T>, s, b, top, height, c.data<T>(),
                       gx.mutable_data<T>());
      }
    });
    return gx;
  }

  template <class T>
  Tensor weight_gradient(const Tensor& x, const Tensor& gy) const {
    Tensor total =
        zeros({out, s.kernel_height, s.kernel_width, in_each()}, gy.dtype(), gy.device());
    Tensor one = empty({out_each(), inner()}, gy.dtype(), gy.device());
    ReducedBox all;
    all.add(one.numel(), true);
    each_block([&](const ConvBlock& b) {
      const Tensor rows = part(gy, b);
      for (std::int64_t g = 0; g < groups; ++g) {
        const Tensor c = columns<T>(x, b, g), z = group_of(rows, g);
        LIPGRAD_LAUNCH(gy.device(), matmul<T>, 1, true, false, out_each(), inner(), c.size(0),
                       z.data<T>(), 0, c.data<T>(), 0, one.mutable_data<T>());
        LIPGRAD_LAUNCH(gy.device(), accumulate<T>, all, total.mutable_data<T>() + g * one.numel(),
                       one.data<T>());
      }
    });
    return permute(total, {0, 3, 1, 2});
  }

  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    visit_float(op, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (ctx.needs_grad(0)) gx[0] = input_gradient<T>(ctx.saved(1), gy);
      if (ctx.needs_grad(1)) gx[1] = weight_gradient<T>(ctx.saved(0), gy);
      if (ctx.needs_grad(2)) gx[2] = bias_gradient<T>(gy, out);
    });
  }
};

// Sizes of the result along one side.
std::int64_t outputs(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding) {
  return (size + 2 * padding - kernel) / stride + 1;
}

ConvShape checked(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Conv2dOptions& o) {
  check_same_kind(op, {&x, &weight});
  if (bias.defined()) check_same_kind(op, {&x, &bias});
  LIPGRAD_CHECK(x.rank() == 4, "conv2d: expects x of (B, H, W, C), got {}", x.shape());
  LIPGRAD_CHECK(o.groups >= 1 && x.size(3) % o.groups == 0,
                "conv2d: {} groups do not divide the {} channels of x", o.groups, x.size(3));
  LIPGRAD_CHECK(weight.rank() == 4 && weight.size(1) == x.size(3) / o.groups && weight.numel() > 0,
                "conv2d: x {} in {} groups needs a weight of (out, {}, kh, kw), got {}", x.shape(),
                o.groups, x.size(3) / o.groups, weight.shape());
  LIPGRAD_CHECK(weight.size(0) % o.groups == 0,
                "conv2d: {} groups do not divide the {} channels of the result", o.groups,
                weight.size(0));
  LIPGRAD_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)},
                "conv2d: weight {} needs a bias of ({}), got {}", weight.shape(), weight.size(0),
                bias.defined() ? bias.shape().str() : "");
  LIPGRAD_CHECK(
      o.stride.height >= 1 && o.stride.width >= 1 && o.padding.height >= 0 && o.padding.width >= 0,
      "conv2d: a stride of {} x {}, a padding of {} x {}", o.stride.height, o.stride.width,
      o.padding.height, o.padding.width);
  const std::int64_t kh = weight.size(2), kw = weight.size(3);
  LIPGRAD_CHECK(kh <= x.size(1) + 2 * o.padding.height && kw <= x.size(2) + 2 * o.padding.width,
                "conv2d: a kernel of {} x {} is larger than the image of {} x {} with a padding of "
                "{} x {}",
                kh, kw, x.size(1), x.size(2), o.padding.height, o.padding.width);
  return {x.size(0),
          x.size(1),
          x.size(2),
          x.size(3),
          kh,
          kw,
          o.stride.height,
          o.stride.width,
          o.padding.height,
          o.padding.width,
          outputs(x.size(1), kh, o.stride.height, o.padding.height),
          outputs(x.size(2), kw, o.stride.width, o.padding.width)};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  const ConvShape s = checked(x, weight, bias, options);
  const std::int64_t out = weight.size(0), kh = s.kernel_height, kw = s.kernel_width;
  if (options.groups > 1 && options.groups == s.channels && out == s.channels)
    return apply(DepthwiseConv{s}, x, weight, bias);
  if (options.groups == 1 && options.padding == Size2d(0) && options.stride == Size2d(kh, kw) &&
      s.height % kh == 0 && s.width % kw == 0) {
    if (kh == 1 && kw == 1) return linear(x, reshape(weight, {out, s.channels}), bias);
    const Tensor patches = permute(
        reshape(x, {s.batch, s.out_height, kh, s.out_width, kw, s.channels}), {0, 1, 3, 2, 4, 5});
    const std::int64_t inner = kh * kw * s.channels;
    return linear(reshape(patches, {s.batch, s.out_height, s.out_width, inner}),
                  reshape(permute(weight, {0, 2, 3, 1}), {out, inner}), bias);
  }
  return apply(Conv{s, options.groups, out}, x, weight, bias);
}

namespace {

Shape weight_shape(std::int64_t in, std::int64_t out, Size2d kernel, std::int64_t groups) {
  LIPGRAD_CHECK(in >= 1 && out >= 1 && kernel.height >= 1 && kernel.width >= 1,
                "Conv2d: sizes must be at least 1, got {} to {} channels and a kernel of {} x {}",
                in, out, kernel.height, kernel.width);
  LIPGRAD_CHECK(groups >= 1 && in % groups == 0 && out % groups == 0,
                "Conv2d: {} groups do not divide {} and {} channels", groups, in, out);
  return {out, in / groups, kernel.height, kernel.width};
}

Initializer either(const Initializer& given, const Shape& weight) {
  return given ? given : init::fan_uniform(weight.trailing(1));
}

}  // namespace

Conv2d::Conv2d(Module& parent, std::string name, std::int64_t in, std::int64_t out, Size2d kernel,
               const Conv2dLayerOptions& options)
    : Module(parent, std::move(name)),
      weight(*this, "weight", weight_shape(in, out, kernel, options.groups),
             either(options.weight_initializer, weight_shape(in, out, kernel, options.groups)),
             options.dtype),
      options_{options.stride, options.padding, options.groups} {
  if (options.bias)
    bias.emplace(*this, "bias", Shape{out}, either(options.bias_initializer, weight.shape()),
                 options.dtype);
}

Tensor Conv2d::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  return conv2d(x, weight, bias ? bias->value() : Tensor(), options_);
}

}  // namespace lipgrad
