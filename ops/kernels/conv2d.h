#pragma once

// C++17, for host and device compilers alike. The pixels that the outputs of a convolution read,
// side by side, so that it becomes a matrix product.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/ops/kernels/conv_shape.h>

namespace lipgrad {

// Output rows first_row ... first_row + rows - 1 of some images, and the channels of the input that
// they are computed from.
struct ConvBlock {
  std::int64_t first_image, images, first_row, rows, first_channel, channels;

  std::int64_t outputs(const ConvShape& s) const { return images * rows * s.out_width; }
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // columns(images, rows, out_width, kernel_height, kernel_width, channels of the block) = the
    // pixels of x(batch, height, width, channels) that the block's outputs read.
    template <class T>
    void conv_columns(const ConvShape& s, const ConvBlock& block, const T* x, T* columns);
    // For pixels in the `height` rows from `top` of the block's images and its channels: gx = the
    // sum of the columns' elements that were copied from them. The block holds all outputs that
    // read these pixels.
    template <class T>
    void conv_columns_backward(const ConvShape& s, const ConvBlock& block, std::int64_t top,
                               std::int64_t height, const T* columns, T* gx);)
