#include <lipgrad/graph/kernels/node_norm.h>

#include "reduce.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;

// The sum of value(c) over a row's columns, by a warp or by the block. A row is read from memory
// once: it stays in the first cache for the passes that follow.
template <int team, class F>
__device__ __forceinline__ double sum_row(std::int64_t cols, int lane, F value) {
  double sum = 0;
  for (std::int64_t c = lane; c < cols; c += team) sum += static_cast<double>(value(c));
  return team == kWarp ? warp_reduce(sum, Sum()) : block_reduce<kThreads>(sum, Sum(), 0.0);
}

template <class T, int team>
__global__ void __launch_bounds__(kThreads)
    node_norm_kernel(std::int64_t rows, std::int64_t cols, double eps, double power, const T* x,
                     T* y, T* mean, T* scale) {
  const int lane = static_cast<int>(threadIdx.x) % team;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / team) +
                           static_cast<int>(threadIdx.x) / team;
  if (row >= rows) return;  // whole teams
  const double n = static_cast<double>(cols);
  const T* from = x + row * cols;
  const T centre =
      static_cast<T>(sum_row<team>(cols, lane, [&](std::int64_t c) { return from[c]; }) / n);
  const double squares = sum_row<team>(cols, lane, [&](std::int64_t c) {
    const T d = from[c] - centre;
    return d * d;
  });
  const T s = static_cast<T>(::pow(squares / n + eps, -0.5 * power));
  for (std::int64_t c = lane; c < cols; c += team) y[row * cols + c] = from[c] * s;
  if (lane > 0) return;
  mean[row] = centre;
  scale[row] = s;
}

template <class T, int team>
__global__ void __launch_bounds__(kThreads)
    node_norm_backward_kernel(std::int64_t rows, std::int64_t cols, double power, const T* x,
                              const T* mean, const T* scale, const T* gy, T* gx) {
  const int lane = static_cast<int>(threadIdx.x) % team;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / team) +
                           static_cast<int>(threadIdx.x) / team;
  if (row >= rows) return;  // whole teams
  const T *from = x + row * cols, *g = gy + row * cols;
  const double dot = sum_row<team>(cols, lane, [&](std::int64_t c) { return from[c] * g[c]; });
  // s / (v + eps) = s^(1 + 2 / power)
  const double s = static_cast<double>(scale[row]);
  const T centre = mean[row], factor = scale[row],
          along = static_cast<T>(power * ::pow(s, 1 + 2 / power) * dot / static_cast<double>(cols));
  for (std::int64_t c = lane; c < cols; c += team)
    gx[row * cols + c] = factor * g[c] - along * (from[c] - centre);
}

constexpr std::int64_t kNarrow = 1024;  // columns that a warp handles

}  // namespace

template <class T>
void node_norm(std::int64_t rows, std::int64_t cols, double eps, double power, const T* x, T* y,
               T* mean, T* scale) {
  if (cols <= kNarrow) {
    launch(node_norm_kernel<T, kWarp>, blocks_for(rows, kThreads / kWarp), kThreads, 0, rows, cols,
           eps, power, x, y, mean, scale);
  } else {
    launch(node_norm_kernel<T, kThreads>, blocks_for(rows, 1), kThreads, 0, rows, cols, eps, power,
           x, y, mean, scale);
  }
}

template <class T>
void node_norm_backward(std::int64_t rows, std::int64_t cols, double power, const T* x,
                        const T* mean, const T* scale, const T* gy, T* gx) {
  if (cols <= kNarrow) {
    launch(node_norm_backward_kernel<T, kWarp>, blocks_for(rows, kThreads / kWarp), kThreads, 0,
           rows, cols, power, x, mean, scale, gy, gx);
  } else {
    launch(node_norm_backward_kernel<T, kThreads>, blocks_for(rows, 1), kThreads, 0, rows, cols,
           power, x, mean, scale, gy, gx);
  }
}

#define INSTANTIATE(T)                                                                       \
  template void node_norm(std::int64_t, std::int64_t, double, double, const T*, T*, T*, T*); \
  template void node_norm_backward(std::int64_t, std::int64_t, double, const T*, const T*,   \
                                   const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
