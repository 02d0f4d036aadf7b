#include <lipgrad/ops/kernels/conv2d.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;

// A thread an element of the columns, E a number or a pack of them; `channels` of x and those of
// the block counted in E.
template <class E>
__global__ void columns_kernel(ConvShape s, ConvBlock b, std::int64_t n, const E* x, E zero,
                               E* columns) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  std::int64_t rest = i / b.channels;
  const std::int64_t channel = b.first_channel + i - rest * b.channels;
  std::int64_t up = rest / s.kernel_width;
  const std::int64_t u = rest - up * s.kernel_width;
  rest = up;
  up = rest / s.kernel_height;
  const std::int64_t v = rest - up * s.kernel_height;
  rest = up;
  up = rest / s.out_width;
  const std::int64_t ox = rest - up * s.out_width, image = up / b.rows, oy = up - image * b.rows;
  const std::int64_t y = (b.first_row + oy) * s.stride_down - s.pad_down + v,
                     left = ox * s.stride_right - s.pad_right + u;
  columns[i] =
      y >= 0 && y < s.height && left >= 0 && left < s.width
          ? x[(((b.first_image + image) * s.height + y) * s.width + left) * s.channels + channel]
          : zero;
}

// A thread an element of gx.
template <class T>
__global__ void columns_backward_kernel(ConvShape s, ConvBlock b, std::int64_t n, std::int64_t top,
                                        std::int64_t height, const T* columns, T* gx) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  std::int64_t rest = i / b.channels;
  const std::int64_t channel = i - rest * b.channels;
  std::int64_t up = rest / s.width;
  const std::int64_t x = rest - up * s.width, image = up / height, y = top + up - image * height;
  T sum = 0;
  for (std::int64_t v = 0; v < s.kernel_height; ++v) {
    const std::int64_t down = y + s.pad_down - v, oy = down / s.stride_down;
    if (down < 0 || oy * s.stride_down != down || oy >= s.out_height) continue;
    for (std::int64_t u = 0; u < s.kernel_width; ++u) {
      const std::int64_t right = x + s.pad_right - u, ox = right / s.stride_right;
      if (right < 0 || ox * s.stride_right != right || ox >= s.out_width) continue;
      const std::int64_t output = (image * b.rows + oy - b.first_row) * s.out_width + ox;
      sum += columns[(output * s.taps() + v * s.kernel_width + u) * b.channels + channel];
    }
  }
  gx[(((b.first_image + image) * s.height + y) * s.width + x) * s.channels + b.first_channel +
     channel] = sum;
}

}  // namespace

template <class T>
void conv_columns(const ConvShape& s, const ConvBlock& block, const T* x, T* columns) {
  constexpr int size = Pack<T>::size;
  const std::int64_t n = block.outputs(s) * s.taps() * block.channels;
  if (block.channels % size == 0 && s.channels % size == 0 && aligned(x, columns)) {
    ConvShape packed = s;
    ConvBlock part = block;
    packed.channels /= size;
    part.channels /= size;
    part.first_channel /= size;
    launch(columns_kernel<Pack<T>>, blocks_for(n / size, kThreads), kThreads, 0, packed, part,
           n / size, reinterpret_cast<const Pack<T>*>(x), Pack<T>{},
           reinterpret_cast<Pack<T>*>(columns));
  } else {
    launch(columns_kernel<T>, blocks_for(n, kThreads), kThreads, 0, s, block, n, x, T(0), columns);
  }
}

template <class T>
void conv_columns_backward(const ConvShape& s, const ConvBlock& block, std::int64_t top,
                           std::int64_t height, const T* columns, T* gx) {
  const std::int64_t n = block.images * height * s.width * block.channels;
  launch(columns_backward_kernel<T>, blocks_for(n, kThreads), kThreads, 0, s, block, n, top, height,
         columns, gx);
}

#define LIPGRAD_INSTANTIATE(T)                                                          \
  template void conv_columns(const ConvShape&, const ConvBlock&, const T*, T*);         \
  template void conv_columns_backward(const ConvShape&, const ConvBlock&, std::int64_t, \
                                      std::int64_t, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cuda
