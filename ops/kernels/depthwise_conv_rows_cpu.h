#pragma once

// How depth-wise convolutions are cut, and the functions of one type and target that they are made
// of, as a table.

#include <algorithm>
#include <cstdint>

#include <lipgrad/ops/kernels/conv_shape.h>

namespace lipgrad::cpu {

// Part of a result: rows of one image, and channels.
struct DepthwisePart {
  std::int64_t image, row_begin, row_end, channel_begin, channel_end;
  std::int64_t rows() const { return row_end - row_begin; }
};

// Results (batch, height, ., channels) in bands of rows, whose pixels stay in the cache, and groups
// of channels.
struct DepthwiseParts {
  static constexpr std::int64_t band = 14, group = 128;
  std::int64_t height, channels, bands_of_image, bands, groups;

  DepthwiseParts(std::int64_t batch, std::int64_t rows, std::int64_t all_channels)
      : height(rows),
        channels(all_channels),
        bands_of_image((rows + band - 1) / band),
        bands(batch * bands_of_image),
        groups((all_channels + group - 1) / group) {}
  DepthwisePart of(std::int64_t i, std::int64_t g) const {
    const std::int64_t first = i % bands_of_image * band;
    return {i / bands_of_image, first, std::min(height, first + band), g * group,
            std::min(channels, (g + 1) * group)};
  }
};

template <class T>
struct DepthwiseRows {
  // The part of y; weight is (taps, channels).
  void (*forward)(const ConvShape& s, const DepthwisePart& part, const T* x, const T* weight,
                  const T* bias, T* y);
  // The part of gx, for any stride.
  void (*backward_input)(const ConvShape& s, const DepthwisePart& part, const T* weight,
                         const T* gy, T* gx);
};

// gweight(taps, channels) += the sums over the part's outputs.
template <class T>
using DepthwiseWeightRows = void (*)(const ConvShape& s, const DepthwisePart& part, const T* x,
                                     const T* gy, T* gweight);

}  // namespace lipgrad::cpu
