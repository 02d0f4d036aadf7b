#pragma once

// C++17, for host and device compilers alike.

#include <cstdint>

#include <lipgrad/core/philox.h>  // LIPGRAD_HD

namespace lipgrad {

// A two-dimensional convolution over images (batch, height, width, channels): output (oy, ox) reads
// the pixels (oy * stride_down - pad_down + ky, ox * stride_right - pad_right + kx) for the taps
// ky < kernel_height, kx < kernel_width; those outside of the image count as zeros.
struct ConvShape {
  std::int64_t batch, height, width, channels;
  std::int64_t kernel_height, kernel_width;
  std::int64_t stride_down, stride_right;
  std::int64_t pad_down, pad_right;
  std::int64_t out_height, out_width;

  LIPGRAD_HD std::int64_t taps() const { return kernel_height * kernel_width; }
  std::int64_t outputs() const { return batch * out_height * out_width; }
};

// Whether the gradient of the input is itself a convolution with stride 1, of the gradient of the
// output by the kernel turned by 180 degrees; and that convolution.
inline bool turns(const ConvShape& s) {
  return s.stride_down == 1 && s.stride_right == 1 && s.pad_down < s.kernel_height &&
         s.pad_right < s.kernel_width;
}
inline ConvShape turned(const ConvShape& s) {
  ConvShape t = s;
  t.height = s.out_height;
  t.width = s.out_width;
  t.out_height = s.height;
  t.out_width = s.width;
  t.pad_down = s.kernel_height - 1 - s.pad_down;
  t.pad_right = s.kernel_width - 1 - s.pad_right;
  return t;
}

}  // namespace lipgrad
