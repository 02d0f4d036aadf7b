#include <lipgrad/vision/kernels/windows.h>

#include <algorithm>
#include <cstring>

#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements

// Calls f(place in the image, place among the windows, length) for runs of neighbours on both
// sides, one or two for each row of a window.
template <class F>
void each_run(const WindowCut& c, std::int64_t batch, std::int64_t channels, F f) {
  const std::int64_t across = c.window_width == 0 ? 0 : c.width / c.window_width;
  const std::int64_t row = c.width * channels;  // of an image, and of its windows side by side
  if (row == 0) return;
  parallel_for(
      batch * c.height, std::max<std::int64_t>(1, grain / row),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t image = i / c.height, y = i % c.height, band = y / c.window_height;
          const std::int64_t from = (image * c.height + (y + c.down) % c.height) * row;
          for (std::int64_t k = 0; k < across; ++k) {
            const std::int64_t window = (image * (c.height / c.window_height) + band) * across + k;
            const std::int64_t to =
                (window * c.window_height + y % c.window_height) * c.window_width * channels;
            const std::int64_t x = (k * c.window_width + c.right) % c.width;
            const std::int64_t first = std::min(c.window_width, c.width - x);
            f(from + x * channels, to, first * channels);
            if (first < c.window_width)
              f(from, to + first * channels, (c.window_width - first) * channels);
          }
        }
      });
}

}  // namespace

template <class T>
void to_windows(const WindowCut& cut, std::int64_t batch, std::int64_t channels, const T* image,
                T* windows) {
  each_run(cut, batch, channels, [=](std::int64_t in, std::int64_t out, std::int64_t n) {
    std::memcpy(windows + out, image + in, n * sizeof(T));
  });
}

template <class T>
void from_windows(const WindowCut& cut, std::int64_t batch, std::int64_t channels, const T* windows,
                  T* image) {
  each_run(cut, batch, channels, [=](std::int64_t in, std::int64_t out, std::int64_t n) {
    std::memcpy(image + in, windows + out, n * sizeof(T));
  });
}

#define LIPGRAD_INSTANTIATE(T)                                                          \
  template void to_windows(const WindowCut&, std::int64_t, std::int64_t, const T*, T*); \
  template void from_windows(const WindowCut&, std::int64_t, std::int64_t, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cpu
