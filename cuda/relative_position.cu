#include <lipgrad/vision/kernels/relative_position.h>

#include "launch.h"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;

// A thread an element of bias (H, T, T).
template <class T>
__global__ void bias_kernel(std::int64_t heads, std::int64_t height, std::int64_t width,
                            const T* table, T* bias) {
  const std::int64_t tokens = height * width, at = thread_index();
  if (at >= heads * tokens * tokens) return;
  const std::int64_t b = at % tokens, a = at / tokens % tokens, h = at / tokens / tokens;
  const std::int64_t row =
      (a / width - b / width + height - 1) * (2 * width - 1) + a % width - b % width + width - 1;
  bias[at] = table[row * heads + h];
}

// A thread an element of the table, which adds up the pairs of tokens at its offset.
template <class T>
__global__ void backward_kernel(std::int64_t heads, std::int64_t height, std::int64_t width,
                                const T* grad_bias, T* grad_table) {
  const std::int64_t tokens = height * width, rows = (2 * height - 1) * (2 * width - 1),
                     at = thread_index();
  if (at >= rows * heads) return;
  const std::int64_t row = at % rows, h = at / rows, dy = row / (2 * width - 1) - (height - 1),
                     dx = row % (2 * width - 1) - (width - 1);
  const T* grad = grad_bias + h * tokens * tokens;
  double sum = 0;
  for (std::int64_t ya = dy > 0 ? dy : 0; ya < height && ya - dy < height; ++ya)
    for (std::int64_t xa = dx > 0 ? dx : 0; xa < width && xa - dx < width; ++xa)
      sum += grad[(ya * width + xa) * tokens + (ya - dy) * width + xa - dx];
  grad_table[row * heads + h] = static_cast<T>(sum);
}

}  // namespace

template <class T>
void relative_position_bias(std::int64_t heads, std::int64_t height, std::int64_t width,
                            const T* table, T* bias) {
  const std::int64_t tokens = height * width;
  launch(bias_kernel<T>, blocks_for(heads * tokens * tokens, kThreads), kThreads, 0, heads, height,
         width, table, bias);
}

template <class T>
void relative_position_bias_backward(std::int64_t heads, std::int64_t height, std::int64_t width,
                                     const T* grad_bias, T* grad_table) {
  const std::int64_t rows = (2 * height - 1) * (2 * width - 1);
  launch(backward_kernel<T>, blocks_for(rows * heads, kThreads), kThreads, 0, heads, height, width,
         grad_bias, grad_table);
}

#define LIPGRAD_INSTANTIATE(T)                                                                     \
  template void relative_position_bias<T>(std::int64_t, std::int64_t, std::int64_t, const T*, T*); \
  template void relative_position_bias_backward<T>(std::int64_t, std::int64_t, std::int64_t,       \
                                                   const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cuda
