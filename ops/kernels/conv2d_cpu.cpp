#include <lipgrad/ops/kernels/conv2d.h>

#include <algorithm>
#include <cstring>

#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

namespace lipgrad::cpu {

template <class T>
void conv_columns(const ConvShape& s, const ConvBlock& block, const T* x, T* columns) {
  const std::int64_t n = block.channels, line = s.kernel_width * n, column = s.taps() * n;
  parallel_for(
      block.images * block.rows, rows_per_block(cheap_grain, s.out_width * column),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t image = block.first_image + i / block.rows,
                             y = (block.first_row + i % block.rows) * s.stride_down - s.pad_down;
          T* to = columns + i * s.out_width * column;
          for (std::int64_t ox = 0; ox < s.out_width; ++ox) {
            const std::int64_t left = ox * s.stride_right - s.pad_right;
            for (std::int64_t v = 0; v < s.kernel_height; ++v, to += line) {
              const bool inside = y + v >= 0 && y + v < s.height;
              const T* row =
                  x + (image * s.height + y + v) * s.width * s.channels + block.first_channel;
              if (inside && n == s.channels && left >= 0 && left + s.kernel_width <= s.width) {
                std::memcpy(to, row + left * n, line * sizeof(T));
                continue;
              }
              for (std::int64_t u = 0; u < s.kernel_width; ++u) {
                if (inside && left + u >= 0 && left + u < s.width) {
                  std::memcpy(to + u * n, row + (left + u) * s.channels, n * sizeof(T));
                } else {
                  std::fill(to + u * n, to + (u + 1) * n, T(0));
                }
              }
            }
          }
        }
      });
}

template <class T>
void conv_columns_backward(const ConvShape& s, const ConvBlock& block, std::int64_t top,
                           std::int64_t height, const T* columns, T* gx) {
  const std::int64_t n = block.channels, column = s.taps() * n;
  parallel_for(
      block.images * height, rows_per_block(cheap_grain, s.width * column),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t image = i / height, y = top + i % height;
          T* to = gx + ((block.first_image + image) * s.height + y) * s.width * s.channels +
                  block.first_channel;
          for (std::int64_t x = 0; x < s.width; ++x, to += s.channels) {
            std::fill(to, to + n, T(0));
            for (std::int64_t v = 0; v < s.kernel_height; ++v) {
              const std::int64_t down = y + s.pad_down - v, oy = down / s.stride_down;
              if (down < 0 || down % s.stride_down != 0 || oy >= s.out_height) continue;
              for (std::int64_t u = 0; u < s.kernel_width; ++u) {
                const std::int64_t right = x + s.pad_right - u, ox = right / s.stride_right;
                if (right < 0 || right % s.stride_right != 0 || ox >= s.out_width) continue;
                const T* from =
                    columns +
                    ((image * block.rows + oy - block.first_row) * s.out_width + ox) * column +
                    (v * s.kernel_width + u) * n;
                for (std::int64_t c = 0; c < n; ++c) to[c] += from[c];
              }
            }
          }
        }
      });
}

#define LIPGRAD_INSTANTIATE(T)                                                          \
  template void conv_columns(const ConvShape&, const ConvBlock&, const T*, T*);         \
  template void conv_columns_backward(const ConvShape&, const ConvBlock&, std::int64_t, \
                                      std::int64_t, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cpu
