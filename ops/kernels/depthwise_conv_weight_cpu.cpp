#include <lipgrad/ops/kernels/depthwise_conv.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/depthwise_conv_weight_cpu.cpp>
#include <hwy/foreach_target.h>

#include <memory>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/depthwise_conv_rows_cpu.h>

#include <lipgrad/ops/kernels/depthwise_conv-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// sum[k] += what kRun neighbouring outputs give to the taps of one row of the kernel; x and gy are
// packed, x at the pixel of tap 0 of the first output.
template <int kTaps, int kRun, class T>
HWY_INLINE void add_run(const T* x, const T* gy, ConvVec<T> (&sum)[kTaps]) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = Simd<T>::lanes();
  ConvVec<T> g[kRun];
#pragma GCC unroll 8
  for (int r = 0; r < kRun; ++r) g[r] = hn::LoadU(d, gy + r * lanes);
#pragma GCC unroll 16
  for (int j = 0; j < kRun + kTaps - 1; ++j) {
    const ConvVec<T> v = hn::LoadU(d, x + j * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRun; ++r)
      if (j - r >= 0 && j - r < kTaps) sum[j - r] = hn::MulAdd(v, g[r], sum[j - r]);
  }
}

template <int kTaps, int kRun, class T>
void add_of(const ConvShape& s, const DepthwisePart& part, const T* x, const T* gy, T* gweight) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = Simd<T>::lanes(), rows = part.rows();
  const std::int64_t runs = (s.out_width + kRun - 1) / kRun, outputs = runs * kRun,
                     columns = outputs + kTaps - 1, top = part.row_begin - s.pad_down,
                     line = columns * lanes;
  const Inside all = inside(top, rows + s.kernel_height - 1, s.height);
  const auto packed = std::make_unique_for_overwrite<T[]>((rows + s.kernel_height - 1) * line +
                                                          rows * outputs * lanes);
  T* const packed_g = packed.get() + (rows + s.kernel_height - 1) * line;
  each_channels<T>(part, [&](auto is_part, std::int64_t c, std::int64_t count) HWY_ATTR {
    constexpr bool kPart = decltype(is_part)::value;
    pack_rows<kPart>(all.begin, all.end, columns, s.pad_right, s.width, s.channels, count,
                     x + (part.image * s.height + top) * s.width * s.channels + c, packed.get());
    pack_rows<kPart>(
        0, rows, outputs, 0, s.out_width, s.channels, count,
        gy + (part.image * s.out_height + part.row_begin) * s.out_width * s.channels + c, packed_g);
    for (std::int64_t ky = 0; ky < s.kernel_height; ++ky) {
      ConvVec<T> sum[kTaps];
#pragma GCC unroll 8
      for (int k = 0; k < kTaps; ++k) sum[k] = hn::Zero(d);
      const Inside i = inside(top + ky, rows, s.height);
      for (std::int64_t row = i.begin; row < i.end; ++row)
        for (std::int64_t ox = 0; ox < outputs; ox += kRun)
          add_run<kTaps, kRun>(packed.get() + (row + ky) * line + ox * lanes,
                               packed_g + (row * outputs + ox) * lanes, sum);
      T* to = gweight + ky * kTaps * s.channels + c;
#pragma GCC unroll 8
      for (int k = 0; k < kTaps; ++k)
        put_channels<kPart>(hn::Add(channels_at<kPart>(to + k * s.channels, count), sum[k]),
                            to + k * s.channels, count);
    }
  });
}

// Any stride and number of taps, a tap at a time.
template <class T>
void add_any(const ConvShape& s, const DepthwisePart& part, const T* x, const T* gy, T* gweight) {
  each_channels<T>(part, [&](auto is_part, std::int64_t c, std::int64_t count) HWY_ATTR {
    constexpr bool kPart = decltype(is_part)::value;
    for (std::int64_t ky = 0; ky < s.kernel_height; ++ky)
      for (std::int64_t kx = 0; kx < s.kernel_width; ++kx) {
        T* to = gweight + (ky * s.kernel_width + kx) * s.channels + c;
        ConvVec<T> sum = channels_at<kPart>(to, count);
        for (std::int64_t oy = part.row_begin; oy < part.row_end; ++oy) {
          const std::int64_t iy = oy * s.stride_down - s.pad_down + ky;
          if (iy < 0 || iy >= s.height) continue;
          const T* from = x + (part.image * s.height + iy) * s.width * s.channels + c;
          const T* g = gy + (part.image * s.out_height + oy) * s.out_width * s.channels + c;
          for (std::int64_t ox = 0; ox < s.out_width; ++ox) {
            const std::int64_t ix = ox * s.stride_right - s.pad_right + kx;
            if (ix < 0 || ix >= s.width) continue;
            sum = hn::MulAdd(channels_at<kPart>(from + ix * s.channels, count),
                             channels_at<kPart>(g + ox * s.channels, count), sum);
          }
        }
        put_channels<kPart>(sum, to, count);
      }
  });
}

template <int kTaps, class T>
void add_by_run(const ConvShape& s, const DepthwisePart& part, const T* x, const T* gy,
                T* gweight) {
  switch (run_length(s.out_width)) {
    case 4:
      return add_of<kTaps, 4>(s, part, x, gy, gweight);
    case 6:
      return add_of<kTaps, 6>(s, part, x, gy, gweight);
    case 7:
      return add_of<kTaps, 7>(s, part, x, gy, gweight);
    default:
      return add_of<kTaps, 8>(s, part, x, gy, gweight);
  }
}

template <class T>
void add(const ConvShape& s, const DepthwisePart& part, const T* x, const T* gy, T* gweight) {
#if HWY_TARGET != HWY_SCALAR
  if (s.stride_down == 1 && s.stride_right == 1) {
    if (s.kernel_width == 7) return add_by_run<7>(s, part, x, gy, gweight);
    if (s.kernel_width == 5) return add_by_run<5>(s, part, x, gy, gweight);
    if (s.kernel_width == 3) return add_by_run<3>(s, part, x, gy, gweight);
  }
#endif
  add_any(s, part, x, gy, gweight);
}

}  // namespace

DepthwiseWeightRows<float> depthwise_weight_f32() { return add<float>; }
DepthwiseWeightRows<double> depthwise_weight_f64() { return add<double>; }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(depthwise_weight_f32);
HWY_EXPORT(depthwise_weight_f64);

namespace {

constexpr std::int64_t most_blocks = 32;  // of bands, each with its own sums

DepthwiseWeightRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(depthwise_weight_f32)(); }
DepthwiseWeightRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(depthwise_weight_f64)(); }

}  // namespace

template <class T>
void depthwise_conv_backward_weight(const ConvShape& s, const T* x, const T* gy, T* gweight) {
  const auto add = rows_of(T());
  const DepthwiseParts parts(s.batch, s.out_height, s.channels);
  const std::int64_t taps = s.taps(), size = taps * s.channels;
  const std::int64_t length =
      std::max<std::int64_t>(1, (parts.bands + most_blocks - 1) / most_blocks);
  const std::int64_t blocks = (parts.bands + length - 1) / length;
  std::vector<T> partial(blocks * size);
  parallel_for(blocks * parts.groups, 1, [&](std::int64_t i, std::int64_t) {
    const std::int64_t block = i / parts.groups, end = std::min(parts.bands, (block + 1) * length);
    for (std::int64_t b = block * length; b < end; ++b)
      add(s, parts.of(b, i % parts.groups), x, gy, partial.data() + block * size);
  });
  parallel_for(taps, 8, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sum(s.channels);
    for (std::int64_t t = begin; t < end; ++t) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (std::int64_t b = 0; b < blocks; ++b)
        for (std::int64_t c = 0; c < s.channels; ++c)
          sum[c] += static_cast<double>(partial[b * size + t * s.channels + c]);
      for (std::int64_t c = 0; c < s.channels; ++c) gweight[c * taps + t] = static_cast<T>(sum[c]);
    }
  });
}

template void depthwise_conv_backward_weight(const ConvShape&, const float*, const float*, float*);
template void depthwise_conv_backward_weight(const ConvShape&, const double*, const double*,
                                             double*);

}  // namespace lipgrad::cpu
#endif
