#include <lipgrad/vision/windows.h>

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/vision/kernels/windows.h>

namespace lipgrad {
namespace {

WindowCut cut_of(const char* op, std::int64_t height, std::int64_t width, const Window& w) {
  LIPGRAD_CHECK(w.height >= 1 && w.width >= 1, "{}: a window of {} x {} pixels", op, w.height,
                w.width);
  LIPGRAD_CHECK(
      height % w.height == 0 && width % w.width == 0,
      "{}: windows of {} x {} do not divide an image of {} x {}: pad or resize it to {} x "
      "{}, or choose a window that divides it",
      op, w.height, w.width, height, width, (height + w.height - 1) / w.height * w.height,
      (width + w.width - 1) / w.width * w.width);
  LIPGRAD_CHECK(
      w.shift_down >= 0 && w.shift_down < w.height && w.shift_right >= 0 && w.shift_right < w.width,
      "{}: shifts of windows of {} x {} must be at least 0 and less than these, got {} "
      "and {}",
      op, w.height, w.width, w.shift_down, w.shift_right);
  return {height, width, w.height, w.width, w.shift_down, w.shift_right};
}

template <bool Reverse>
Tensor move(const WindowCut& cut, const Tensor& from, const Shape& to_shape) {
  Tensor to = empty(to_shape, from.dtype(), from.device());
  const std::int64_t channels = from.size(-1), pixels = cut.height * cut.width;
  const std::int64_t batch = channels == 0 || pixels == 0 ? 0 : from.numel() / channels / pixels;
  visit_float("window_partition", from.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (Reverse) {
      LIPGRAD_LAUNCH(from.device(), from_windows<T>, cut, batch, channels, from.data<T>(),
                     to.mutable_data<T>());
    } else {
      LIPGRAD_LAUNCH(from.device(), to_windows<T>, cut, batch, channels, from.data<T>(),
                     to.mutable_data<T>());
    }
  });
  return to;
}

template <bool Reverse>
struct Windows {
  static constexpr auto name = Reverse ? "window_reverse" : "window_partition";
  WindowCut cut;
  Shape to;

  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save_value(in[0].shape());
    return move<Reverse>(cut, in[0], to);
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = move<!Reverse>(cut, gy, ctx.value<Shape>(0));
  }
};

}  // namespace

Tensor window_partition(const Tensor& x, const Window& window) {
  constexpr auto op = "window_partition";
  check_same_kind(op, {&x});
  LIPGRAD_CHECK(x.rank() == 4, "{}: expects (B, H, W, C), got {}", op, x.shape());
  const WindowCut cut = cut_of(op, x.size(1), x.size(2), window);
  const std::int64_t windows = (cut.height / window.height) * (cut.width / window.width);
  return apply(
      Windows<false>{cut, Shape{x.size(0) * windows, window.height * window.width, x.size(3)}}, x);
}

Tensor window_reverse(const Tensor& windows, std::int64_t height, std::int64_t width,
                      const Window& window) {
  constexpr auto op = "window_reverse";
  check_same_kind(op, {&windows});
  LIPGRAD_CHECK(height >= 1 && width >= 1, "{}: an image of {} x {} pixels", op, height, width);
  const WindowCut cut = cut_of(op, height, width, window);
  const std::int64_t each = (height / window.height) * (width / window.width);
  LIPGRAD_CHECK(windows.rank() == 3 && windows.size(0) % each == 0 &&
                    windows.size(1) == window.height * window.width,
                "{}: images of {} x {} in windows of {} x {} are (B * {}, {}, C), got {}", op,
                height, width, window.height, window.width, each, window.height * window.width,
                windows.shape());
  return apply(Windows<true>{cut, Shape{windows.size(0) / each, height, width, windows.size(2)}},
               windows);
}

Tensor window_regions(std::int64_t height, std::int64_t width, const Window& window) {
  const WindowCut cut = cut_of("window_regions", height, width, window);
  // Bands of the shifted image: whole windows, then the last windows before and after the edge.
  const auto band = [](std::int64_t i, std::int64_t size, std::int64_t piece, std::int64_t shift) {
    return shift == 0 || i < size - piece ? 0 : i < size - shift ? 1 : 2;
  };
  const std::int64_t across = width / window.width, windows = height / window.height * across;
  Tensor labels = empty({windows, window.height * window.width}, u8);
  std::uint8_t* to = labels.mutable_data<std::uint8_t>();
  for (std::int64_t k = 0; k < windows; ++k)
    for (std::int64_t i = 0; i < window.height; ++i)
      for (std::int64_t j = 0; j < window.width; ++j) {
        const std::int64_t y = k / across * window.height + i, x = k % across * window.width + j;
        *to++ = static_cast<std::uint8_t>(3 * band(y, height, window.height, cut.down) +
                                          band(x, width, window.width, cut.right));
      }
  return labels;
}

}  // namespace lipgrad
