#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// How an image is cut into windows of height x width pixels, with a cyclic shift of the image
// before: the window at (0, 0) starts at pixel (shift_down, shift_right), and what would reach over
// the lower and right edges continues at the upper and left ones (Liu et al., Swin Transformer,
// arXiv:2103.14030, section 3.2; torch.roll by the negative shifts).
struct Window {
  std::int64_t height, width;
  std::int64_t shift_down = 0, shift_right = 0;
};

// x(B, H, W, C) as windows (B * windows, height * width, C), in one copy with the shift: images
// first, then windows row by row, then the pixels of a window row by row. f32 or f64. A
// permutation: the gradient is its inverse. Error unless the window's sizes divide the image's and
// the shifts are at least 0 and less than the window's sizes.
Tensor window_partition(const Tensor& x, const Window& window);

// The inverse: windows (B * windows, height * width, C) back to an image (B, H, W, C).
Tensor window_reverse(const Tensor& windows, std::int64_t height, std::int64_t width,
                      const Window& window);

// Labels of the shifted windows' pixels, u8 (windows, height * width), on the CPU: pixels of a
// window attend to one another only if their labels are equal, so that none attends over the edge
// of the image at which the shift wrapped around. Without a shift all are 0. The same for each
// image of a batch. Errors as window_partition.
Tensor window_regions(std::int64_t height, std::int64_t width, const Window& window);

}  // namespace lipgrad
