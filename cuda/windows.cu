#include <lipgrad/vision/kernels/windows.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;

// A thread for each element of the image, E a number or a pack of them, `channels` of E a pixel:
// neighbours touch neighbours on both sides, but for the ends of a window's rows.
template <bool kReverse, class E>
__global__ void windows_kernel(WindowCut c, std::int64_t n, std::int64_t channels, const E* from,
                               E* to) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  // Place i is among the windows; divisions of 32 bits, as sizes of images fit into them.
  const std::int64_t pixel = i / channels, channel = i - pixel * channels;
  const std::int64_t area = c.height * c.width, image = pixel / area;
  unsigned rest = static_cast<unsigned>(pixel - image * area);
  const unsigned window_width = static_cast<unsigned>(c.window_width),
                 window_height = static_cast<unsigned>(c.window_height),
                 across = static_cast<unsigned>(c.width) / window_width;
  unsigned up = rest / window_width;
  const unsigned column = rest - up * window_width;
  rest = up;
  up = rest / window_height;
  const unsigned row = rest - up * window_height, band = up / across, k = up - band * across;
  std::int64_t y = static_cast<std::int64_t>(band) * window_height + row + c.down,
               x = static_cast<std::int64_t>(k) * window_width + column + c.right;
  if (y >= c.height) y -= c.height;
  if (x >= c.width) x -= c.width;
  const std::int64_t at = ((image * c.height + y) * c.width + x) * channels + channel;
  if (kReverse) {
    to[at] = from[i];
  } else {
    to[i] = from[at];
  }
}

template <bool kReverse, class E>
void run(const WindowCut& cut, std::int64_t batch, std::int64_t channels, const E* from, E* to) {
  const std::int64_t n = batch * cut.height * cut.width * channels;
  launch(windows_kernel<kReverse, E>, blocks_for(n, kThreads), kThreads, 0, cut, n, channels, from,
         to);
}

template <bool kReverse, class T>
void move(const WindowCut& cut, std::int64_t batch, std::int64_t channels, const T* from, T* to) {
  constexpr int size = Pack<T>::size;
  if (channels % size == 0 && aligned(from, to)) {
    run<kReverse>(cut, batch, channels / size, reinterpret_cast<const Pack<T>*>(from),
                  reinterpret_cast<Pack<T>*>(to));
  } else {
    run<kReverse>(cut, batch, channels, from, to);
  }
}

}  // namespace

template <class T>
void to_windows(const WindowCut& cut, std::int64_t batch, std::int64_t channels, const T* image,
                T* windows) {
  move<false>(cut, batch, channels, image, windows);
}

template <class T>
void from_windows(const WindowCut& cut, std::int64_t batch, std::int64_t channels, const T* windows,
                  T* image) {
  move<true>(cut, batch, channels, windows, image);
}

#define LIPGRAD_INSTANTIATE(T)                                                          \
  template void to_windows(const WindowCut&, std::int64_t, std::int64_t, const T*, T*); \
  template void from_windows(const WindowCut&, std::int64_t, std::int64_t, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cuda
