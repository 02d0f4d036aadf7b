#include <lipgrad/ops/kernels/depthwise_conv.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/depthwise_conv_cpu.cpp>
#include <hwy/foreach_target.h>

#include <memory>

#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/depthwise_conv_rows_cpu.h>

#include <lipgrad/ops/kernels/depthwise_conv-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// kRun neighbouring outputs, of which `outputs` exist, for one vector of channels. x, weight:
// packed, at the first of `rows` taps downwards that lie in the image; a row of x has `line`
// elements.
template <int kTaps, int kRun, bool kPart, class T>
HWY_INLINE void forward_run(std::int64_t rows, std::int64_t line, std::int64_t outputs,
                            std::int64_t channels, std::int64_t count, const T* x, const T* weight,
                            ConvVec<T> bias, T* y) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = Simd<T>::lanes();
  ConvVec<T> sum[kRun];
#pragma GCC unroll 8
  for (int r = 0; r < kRun; ++r) sum[r] = bias;
  for (std::int64_t ky = 0; ky < rows; ++ky, x += line, weight += kTaps * lanes) {
    ConvVec<T> w[kTaps];
#pragma GCC unroll 8
    for (int k = 0; k < kTaps; ++k) w[k] = hn::LoadU(d, weight + k * lanes);
#pragma GCC unroll 16
    for (int j = 0; j < kRun + kTaps - 1; ++j) {
      const ConvVec<T> v = hn::LoadU(d, x + j * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRun; ++r)
        if (j - r >= 0 && j - r < kTaps) sum[r] = hn::MulAdd(v, w[j - r], sum[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRun; ++r)
    if (r < outputs) put_channels<kPart>(sum[r], y + r * channels, count);
}

template <int kTaps, int kRun, class T>
void forward_of(const ConvShape& s, const DepthwisePart& part, const T* x, const T* weight,
                const T* bias, T* y) {
  const std::int64_t lanes = Simd<T>::lanes(), taps = s.taps(), rows = part.rows();
  const std::int64_t runs = (s.out_width + kRun - 1) / kRun, columns = runs * kRun + kTaps - 1,
                     top = part.row_begin - s.pad_down, line = columns * lanes;
  const Inside all = inside(top, rows + s.kernel_height - 1, s.height);
  const auto packed =
      std::make_unique_for_overwrite<T[]>((rows + s.kernel_height - 1) * line + taps * lanes);
  T* const w = packed.get() + (rows + s.kernel_height - 1) * line;
  each_channels<T>(part, [&](auto is_part, std::int64_t c, std::int64_t count) HWY_ATTR {
    constexpr bool kPart = decltype(is_part)::value;
    pack_rows<kPart>(all.begin, all.end, columns, s.pad_right, s.width, s.channels, count,
                     x + (part.image * s.height + top) * s.width * s.channels + c, packed.get());
    pack_rows<kPart>(0, 1, taps, 0, taps, s.channels, count, weight + c, w);
    const ConvVec<T> b =
        bias ? channels_at<kPart>(bias + c, count) : hn::Zero(hn::ScalableTag<T>());
    for (std::int64_t i = 0; i < rows; ++i) {
      const Inside ky = inside(top + i, s.kernel_height, s.height);
      T* to = y + (part.image * s.out_height + part.row_begin + i) * s.out_width * s.channels + c;
      for (std::int64_t ox = 0; ox < s.out_width; ox += kRun)
        forward_run<kTaps, kRun, kPart>(ky.end - ky.begin, line, s.out_width - ox, s.channels,
                                        count, packed.get() + (i + ky.begin) * line + ox * lanes,
                                        w + ky.begin * kTaps * lanes, b, to + ox * s.channels);
    }
  });
}

// Any stride and number of taps, an output at a time.
template <class T>
void forward_any(const ConvShape& s, const DepthwisePart& part, const T* x, const T* weight,
                 const T* bias, T* y) {
  each_channels<T>(part, [&](auto is_part, std::int64_t c, std::int64_t count) HWY_ATTR {
    constexpr bool kPart = decltype(is_part)::value;
    for (std::int64_t oy = part.row_begin; oy < part.row_end; ++oy) {
      const std::int64_t iy = oy * s.stride_down - s.pad_down;
      const Inside ky = inside(iy, s.kernel_height, s.height);
      T* to = y + (part.image * s.out_height + oy) * s.out_width * s.channels + c;
      for (std::int64_t ox = 0; ox < s.out_width; ++ox) {
        const std::int64_t ix = ox * s.stride_right - s.pad_right;
        const Inside kx = inside(ix, s.kernel_width, s.width);
        ConvVec<T> sum =
            bias ? channels_at<kPart>(bias + c, count) : hn::Zero(hn::ScalableTag<T>());
        for (std::int64_t i = ky.begin; i < ky.end; ++i)
          for (std::int64_t j = kx.begin; j < kx.end; ++j)
            sum = hn::MulAdd(
                channels_at<kPart>(
                    x + ((part.image * s.height + iy + i) * s.width + ix + j) * s.channels + c,
                    count),
                channels_at<kPart>(weight + (i * s.kernel_width + j) * s.channels + c, count), sum);
        put_channels<kPart>(sum, to + ox * s.channels, count);
      }
    }
  });
}

template <int kTaps, class T>
void forward_by_run(const ConvShape& s, const DepthwisePart& part, const T* x, const T* weight,
                    const T* bias, T* y) {
  switch (run_length(s.out_width)) {
    case 4:
      return forward_of<kTaps, 4>(s, part, x, weight, bias, y);
    case 6:
      return forward_of<kTaps, 6>(s, part, x, weight, bias, y);
    case 7:
      return forward_of<kTaps, 7>(s, part, x, weight, bias, y);
    default:
      return forward_of<kTaps, 8>(s, part, x, weight, bias, y);
  }
}

template <class T>
void forward(const ConvShape& s, const DepthwisePart& part, const T* x, const T* weight,
             const T* bias, T* y) {
#if HWY_TARGET != HWY_SCALAR
  if (s.stride_down == 1 && s.stride_right == 1) {
    if (s.kernel_width == 7) return forward_by_run<7>(s, part, x, weight, bias, y);
    if (s.kernel_width == 5) return forward_by_run<5>(s, part, x, weight, bias, y);
    if (s.kernel_width == 3) return forward_by_run<3>(s, part, x, weight, bias, y);
  }
#endif
  forward_any(s, part, x, weight, bias, y);
}

template <class T>
void backward_input(const ConvShape& s, const DepthwisePart& part, const T* weight, const T* gy,
                    T* gx) {
  each_channels<T>(part, [&](auto is_part, std::int64_t c, std::int64_t count) HWY_ATTR {
    constexpr bool kPart = decltype(is_part)::value;
    for (std::int64_t iy = part.row_begin; iy < part.row_end; ++iy) {
      T* to = gx + (part.image * s.height + iy) * s.width * s.channels + c;
      for (std::int64_t ix = 0; ix < s.width; ++ix) {
        ConvVec<T> sum = hn::Zero(hn::ScalableTag<T>());
        for (std::int64_t i = 0; i < s.kernel_height; ++i) {
          const std::int64_t down = iy + s.pad_down - i, oy = down / s.stride_down;
          if (down < 0 || down % s.stride_down != 0 || oy >= s.out_height) continue;
          for (std::int64_t j = 0; j < s.kernel_width; ++j) {
            const std::int64_t right = ix + s.pad_right - j, ox = right / s.stride_right;
            if (right < 0 || right % s.stride_right != 0 || ox >= s.out_width) continue;
            sum = hn::MulAdd(
                channels_at<kPart>(
                    gy + ((part.image * s.out_height + oy) * s.out_width + ox) * s.channels + c,
                    count),
                channels_at<kPart>(weight + (i * s.kernel_width + j) * s.channels + c, count), sum);
          }
        }
        put_channels<kPart>(sum, to + ix * s.channels, count);
      }
    }
  });
}

}  // namespace

DepthwiseRows<float> depthwise_rows_f32() { return {forward<float>, backward_input<float>}; }
DepthwiseRows<double> depthwise_rows_f64() { return {forward<double>, backward_input<double>}; }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(depthwise_rows_f32);
HWY_EXPORT(depthwise_rows_f64);

namespace {

DepthwiseRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(depthwise_rows_f32)(); }
DepthwiseRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(depthwise_rows_f64)(); }

// weight(channels, taps) as (taps, channels), the taps in reverse order if `turn`.
template <class T>
std::unique_ptr<T[]> by_taps(const ConvShape& s, const T* weight, bool turn) {
  const std::int64_t taps = s.taps();
  auto to = std::make_unique_for_overwrite<T[]>(taps * s.channels);
  for (std::int64_t c = 0; c < s.channels; ++c)
    for (std::int64_t t = 0; t < taps; ++t)
      to[(turn ? taps - 1 - t : t) * s.channels + c] = weight[c * taps + t];
  return to;
}

template <class T>
void forward_parts(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  const auto kernel = rows_of(T());
  const DepthwiseParts parts(s.batch, s.out_height, s.channels);
  parallel_for(parts.bands * parts.groups, 1, [&](std::int64_t i, std::int64_t) {
    kernel.forward(s, parts.of(i / parts.groups, i % parts.groups), x, weight, bias, y);
  });
}

}  // namespace

template <class T>
void depthwise_conv(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  forward_parts(s, x, by_taps(s, weight, false).get(), bias, y);
}

template <class T>
void depthwise_conv_backward_input(const ConvShape& s, const T* weight, const T* gy, T* gx) {
  if (turns(s)) {
    const T* none = nullptr;
    return forward_parts(turned(s), gy, by_taps(s, weight, true).get(), none, gx);
  }
  const auto kernel = rows_of(T());
  const auto w = by_taps(s, weight, false);
  const DepthwiseParts parts(s.batch, s.height, s.channels);
  parallel_for(parts.bands * parts.groups, 1, [&](std::int64_t i, std::int64_t) {
    kernel.backward_input(s, parts.of(i / parts.groups, i % parts.groups), w.get(), gy, gx);
  });
}

#define LIPGRAD_INSTANTIATE(T)                                                      \
  template void depthwise_conv(const ConvShape&, const T*, const T*, const T*, T*); \
  template void depthwise_conv_backward_input(const ConvShape&, const T*, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cpu
#endif
