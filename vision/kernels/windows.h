#pragma once

// C++17, for host and device compilers alike. Images cut into windows.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

// Images (height, width) cut into windows (window_height, window_width), which divide them, after a
// cyclic shift: row i of the windows is row (i + down) mod height of the image, likewise columns.
// 0 <= down < height, 0 <= right < width.
struct WindowCut {
  std::int64_t height, width, window_height, window_width, down, right;
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // windows(batch, rows and columns of windows, window_height, window_width, channels) = the
    // elements of image(batch, height, width, channels).
    template <class T> void to_windows(const WindowCut& cut, std::int64_t batch,
                                       std::int64_t channels, const T* image, T* windows);
    // The same back.
    template <class T> void from_windows(const WindowCut& cut, std::int64_t batch,
                                         std::int64_t channels, const T* windows, T* image);)
