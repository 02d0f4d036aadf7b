// Depth-wise convolutions with stride 1 along rows, a vector of channels at a time, for one Highway
// target. Included once per target by *_cpu.cpp, after foreach_target.h and outside of any
// namespace.
//
// The rows that a part needs are first copied side by side for one vector of channels, with zeros
// beside the image: in the image they lie a cache line or more apart for each pixel. A run of kRun
// neighbouring outputs is kept in registers: each pixel of a row is loaded once for up to kTaps of
// them, so that kRun kTaps multiplications need kRun + kTaps - 1 loads.

#if defined(LIPGRAD_OPS_KERNELS_DEPTHWISE_CONV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_OPS_KERNELS_DEPTHWISE_CONV_INL_H
#undef LIPGRAD_OPS_KERNELS_DEPTHWISE_CONV_INL_H
#else
#define LIPGRAD_OPS_KERNELS_DEPTHWISE_CONV_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <lipgrad/ops/kernels/depthwise_conv_rows_cpu.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

template <class T>
using ConvVec = hn::Vec<hn::ScalableTag<T>>;

// A vector of channels: whole, or the first `count` of them.
template <bool kPart, class T>
HWY_INLINE ConvVec<T> channels_at(const T* p, std::int64_t count) {
  if constexpr (kPart) {
    return load_part(p, count).raw;
  } else {
    return hn::LoadU(hn::ScalableTag<T>(), p);
  }
}
template <bool kPart, class T>
HWY_INLINE void put_channels(ConvVec<T> v, T* p, std::int64_t count) {
  if constexpr (kPart) {
    store_part(Simd<T>(v), p, count);
  } else {
    hn::StoreU(v, hn::ScalableTag<T>(), p);
  }
}

// Taps [begin, end) of a column that fall inside of the image for one output row or column.
struct Inside {
  std::int64_t begin, end;
};
HWY_INLINE Inside inside(std::int64_t at, std::int64_t taps, std::int64_t size) {
  return {std::max<std::int64_t>(0, -at), std::min(taps, size - at)};
}

// The length of the runs that a row of outputs is cut into: even ones of at most 8.
HWY_INLINE int run_length(std::int64_t outputs) {
  const std::int64_t runs = (outputs + 7) / 8, length = (outputs + runs - 1) / runs;
  return length <= 4 ? 4 : length <= 6 ? 6 : static_cast<int>(length);
}

// to(rows, columns, lanes) = one vector of channels of rows of an image of `width` pixels, x at its
// first row: column j is pixel j - left, zeros where there is none. Rows that are not among
// [first, last) are left out.
template <bool kPart, class T>
HWY_INLINE void pack_rows(std::int64_t first, std::int64_t last, std::int64_t columns,
                          std::int64_t left, std::int64_t width, std::int64_t channels,
                          std::int64_t count, const T* x, T* to) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = Simd<T>::lanes();
  const std::int64_t begin = std::min(left, columns), end = std::min(columns, left + width);
  for (std::int64_t i = first; i < last; ++i) {
    T* line = to + i * columns * lanes;
    const T* from = x + (i * width - left) * channels;
    for (std::int64_t j = 0; j < begin; ++j) hn::StoreU(hn::Zero(d), d, line + j * lanes);
    for (std::int64_t j = begin; j < end; ++j)
      hn::StoreU(channels_at<kPart>(from + j * channels, count), d, line + j * lanes);
    for (std::int64_t j = end; j < columns; ++j) hn::StoreU(hn::Zero(d), d, line + j * lanes);
  }
}

// Calls f(whether not all lanes are used, first channel, channels) for vectors of the part's
// channels.
template <class T, class F>
HWY_INLINE void each_channels(const DepthwisePart& part, F&& f) {
  const std::int64_t lanes = Simd<T>::lanes();
  std::int64_t c = part.channel_begin;
  for (; c + lanes <= part.channel_end; c += lanes) f(std::false_type(), c, lanes);
#if HWY_TARGET != HWY_SCALAR
  if (c < part.channel_end) f(std::true_type(), c, part.channel_end - c);
#endif
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
