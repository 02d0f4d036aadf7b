#include <lipgrad/vision/resample.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/vision/resample.cpp>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <lipgrad/core/check.h>

#ifndef LIPGRAD_RESAMPLE_CONSTANTS
#define LIPGRAD_RESAMPLE_CONSTANTS
namespace lipgrad {
constexpr int kWeightBits = 22;
}
#endif

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// out[x] = the weighted sum of `taps` rows that begin `stride` bytes apart.
void mix_rows(const std::uint8_t* first, std::int64_t stride, std::int64_t taps,
              const std::int32_t* weights, std::int64_t n, std::uint8_t* out) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto half = hn::Set(d, 1 << (kWeightBits - 1));
  std::int64_t x = 0;
  for (; x + 2 * lanes <= n; x += 2 * lanes) {
    auto a = half, b = half;
    const std::uint8_t* p = first + x;
    for (std::int64_t k = 0; k < taps; ++k, p += stride) {
      const auto weight = hn::Set(d, weights[k]);
      a = hn::Add(a, hn::Mul(weight, hn::PromoteTo(d, hn::LoadU(bytes, p))));
      b = hn::Add(b, hn::Mul(weight, hn::PromoteTo(d, hn::LoadU(bytes, p + lanes))));
    }
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kWeightBits>(a)), bytes, out + x);
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kWeightBits>(b)), bytes, out + x + lanes);
  }
  for (; x < n; ++x) {
    std::int32_t sum = 1 << (kWeightBits - 1);
    for (std::int64_t k = 0; k < taps; ++k) sum += weights[k] * first[k * stride + x];
    out[x] = static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
  }
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad {
namespace cpu {

HWY_EXPORT(mix_rows);

static void best_mix_rows(const std::uint8_t* first, std::int64_t stride, std::int64_t taps,
                          const std::int32_t* weights, std::int64_t n, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(mix_rows)(first, stride, taps, weights, n, out);
}

}  // namespace cpu

namespace {

double filter_at(ResampleFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResampleFilter::bilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// Four rows at a time: each weight is read once for all of them.
template <int kChannels, int kRows>
void mix_columns(const std::uint8_t* in, std::int64_t stride, std::int64_t width,
                 const std::int64_t* first, const std::int64_t* count, const std::int32_t* weights,
                 std::int64_t taps, std::uint8_t* out) {
  for (std::int64_t x = 0; x < width; ++x, weights += taps) {
    std::int32_t sum[kRows][kChannels];
    for (auto& row : sum) std::fill(row, row + kChannels, 1 << (kWeightBits - 1));
    const std::uint8_t* p = in + first[x] * kChannels;
    for (std::int64_t k = 0; k < count[x]; ++k, p += kChannels)
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kChannels; ++c) sum[r][c] += weights[k] * p[r * stride + c];
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kChannels; ++c)
        out[(r * width + x) * kChannels + c] =
            static_cast<std::uint8_t>(std::clamp(sum[r][c] >> kWeightBits, 0, 255));
  }
}

}  // namespace

void Resampler::Weights::compute(std::int64_t from, std::int64_t to, ResampleFilter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to),
               filter_scale = std::max(scale, 1.0),
               support = (filter == ResampleFilter::bicubic ? 2.0 : 1.0) * filter_scale;
  taps = 2 * static_cast<std::int64_t>(std::ceil(support)) + 1;
  first.resize(static_cast<std::size_t>(to));
  count.resize(static_cast<std::size_t>(to));
  values.assign(static_cast<std::size_t>(to * taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(taps));
  for (std::int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto low = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto high = std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    double total = 0;
    for (std::int64_t k = 0; k < high - low; ++k) {
      const double weight =
          filter_at(filter, (static_cast<double>(k + low) - center + 0.5) * (1 / filter_scale));
      exact[static_cast<std::size_t>(k)] = weight;
      total += weight;
    }
    first[static_cast<std::size_t>(i)] = low;
    count[static_cast<std::size_t>(i)] = high - low;
    for (std::int64_t k = 0; k < high - low; ++k) {
      double weight = exact[static_cast<std::size_t>(k)];
      if (total != 0) weight /= total;
      weight *= 1 << kWeightBits;
      values[static_cast<std::size_t>(i * taps + k)] =
          static_cast<std::int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
  }
}

void Resampler::resize(const Image& image, const ImageBox& box, std::int64_t height,
                       std::int64_t width, Image& out, ResampleFilter filter) {
  constexpr std::int64_t most = 65535;
  LIPGRAD_CHECK(height >= 1 && width >= 1 && height <= most && width <= most,
                "resize: the new size must be from 1 to {}, got {} x {}", most, width, height);
  LIPGRAD_CHECK(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
                    box.top <= image.height - box.height && box.left <= image.width - box.width,
                "resize: {} x {} pixels from ({}, {}) are not in an image of {} x {}", box.width,
                box.height, box.left, box.top, image.width, image.height);
  LIPGRAD_CHECK(image.channels == 1 || image.channels == 3,
                "resize: expects 1 or 3 channels, got {}", image.channels);
  const std::int64_t channels = image.channels, line = image.width * channels;
  const std::uint8_t* in = image.pixels.data() + box.top * line + box.left * channels;
  out.reset(height, width, channels);
  const bool horizontal = width != box.width, vertical = height != box.height;
  if (!horizontal && !vertical) {
    for (std::int64_t y = 0; y < height; ++y)
      std::memcpy(out.pixels.data() + y * width * channels, in + y * line,
                  static_cast<std::size_t>(width * channels));
    return;
  }
  std::int64_t stride = line;
  if (horizontal) {
    columns_.compute(box.width, width, filter);
    if (vertical) narrow_.resize(static_cast<std::size_t>(box.height * width * channels));
    std::uint8_t* const narrow = vertical ? narrow_.data() : out.pixels.data();
    stride = width * channels;
    for (std::int64_t y = 0; y < box.height;) {
      const bool four = y + 4 <= box.height;
      const auto mix = channels == 1 ? (four ? mix_columns<1, 4> : mix_columns<1, 1>)
                                     : (four ? mix_columns<3, 4> : mix_columns<3, 1>);
      mix(in + y * line, line, width, columns_.first.data(), columns_.count.data(),
          columns_.values.data(), columns_.taps, narrow + y * stride);
      y += four ? 4 : 1;
    }
    in = narrow;
  }
  if (!vertical) return;
  rows_.compute(box.height, height, filter);
  for (std::int64_t y = 0; y < height; ++y) {
    const auto i = static_cast<std::size_t>(y);
    cpu::best_mix_rows(in + rows_.first[i] * stride, stride, rows_.count[i],
                       rows_.values.data() + y * rows_.taps, width * channels,
                       out.pixels.data() + y * width * channels);
  }
}

}  // namespace lipgrad
#endif
