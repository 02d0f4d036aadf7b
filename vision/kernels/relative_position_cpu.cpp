#include <lipgrad/vision/kernels/relative_position.h>

#include <vector>

#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {
namespace {

// f(a, b, row of the table) for all queries a and keys b of a window.
template <class F>
void each_pair(std::int64_t height, std::int64_t width, F f) {
  std::int64_t a = 0;
  for (std::int64_t ya = 0; ya < height; ++ya)
    for (std::int64_t xa = 0; xa < width; ++xa, ++a) {
      std::int64_t b = 0;
      for (std::int64_t yb = 0; yb < height; ++yb)
        for (std::int64_t xb = 0; xb < width; ++xb, ++b)
          f(a, b, (ya - yb + height - 1) * (2 * width - 1) + xa - xb + width - 1);
    }
}

}  // namespace

template <class T>
void relative_position_bias(std::int64_t heads, std::int64_t height, std::int64_t width,
                            const T* table, T* bias) {
  const std::int64_t tokens = height * width;
  parallel_for(heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h)
      each_pair(height, width, [&](std::int64_t a, std::int64_t b, std::int64_t row) {
        bias[(h * tokens + a) * tokens + b] = table[row * heads + h];
      });
  });
}

template <class T>
void relative_position_bias_backward(std::int64_t heads, std::int64_t height, std::int64_t width,
                                     const T* grad_bias, T* grad_table) {
  const std::int64_t tokens = height * width, rows = (2 * height - 1) * (2 * width - 1);
  parallel_for(heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h) {
      std::vector<double> sum(static_cast<std::size_t>(rows));
      each_pair(height, width, [&](std::int64_t a, std::int64_t b, std::int64_t row) {
        sum[static_cast<std::size_t>(row)] += double(grad_bias[(h * tokens + a) * tokens + b]);
      });
      for (std::int64_t row = 0; row < rows; ++row)
        grad_table[row * heads + h] = static_cast<T>(sum[static_cast<std::size_t>(row)]);
    }
  });
}

#define LIPGRAD_INSTANTIATE(T)                                                                     \
  template void relative_position_bias<T>(std::int64_t, std::int64_t, std::int64_t, const T*, T*); \
  template void relative_position_bias_backward<T>(std::int64_t, std::int64_t, std::int64_t,       \
                                                   const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cpu
