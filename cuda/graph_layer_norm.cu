#include <lipgrad/graph/kernels/graph_layer_norm.h>

#include "column_pairs.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 512, kLeastElements = 4096;  // of a block of sums

// partial(blocks, 2): of x - x[0] and of its squares, by blocks of `length` elements. Sums about an
// element cancel little: what it is away from the mean is part of the squares.
template <class T>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(std::int64_t n, std::int64_t length, bool vector, const T* x, double* partial) {
  constexpr int size = Pack<T>::size;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * length,
                     end = begin + length < n ? begin + length : n;
  const double zero = x[0];
  double sum = 0, squares = 0;
#pragma unroll 4
  for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x) * size; i < end;
       i += kThreads * size) {
    const Pack<T> pack = load(x + i, vector, end - i, x[0]);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const double d = static_cast<double>(pack.v[k]) - zero;
      sum += d;
      squares += d * d;
    }
  }
  sum = block_reduce<kThreads>(sum, Sum(), 0.0);
  squares = block_reduce<kThreads>(squares, Sum(), 0.0);
  if (threadIdx.x > 0) return;
  partial += static_cast<std::int64_t>(blockIdx.x) * 2;
  partial[0] = sum;
  partial[1] = squares;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    stats_kernel(std::int64_t n, std::int64_t blocks, double eps, const T* x, const double* partial,
                 T* stats) {
  double sum = 0, squares = 0;
  for (std::int64_t b = threadIdx.x; b < blocks; b += kThreads) {
    sum += partial[2 * b];
    squares += partial[2 * b + 1];
  }
  sum = block_reduce<kThreads>(sum, Sum(), 0.0);
  squares = block_reduce<kThreads>(squares, Sum(), 0.0);
  if (threadIdx.x > 0) return;
  const double count = static_cast<double>(n), variance = (squares - sum * sum / count) / count;
  stats[0] = static_cast<T>(static_cast<double>(x[0]) + sum / count);
  stats[1] = static_cast<T>(1 / sqrt((variance < 0 ? 0.0 : variance) + eps));
}

// The column of element i; the next one's is one more, or 0.
__device__ __forceinline__ std::int64_t column_of(std::int64_t i, std::int64_t cols) {
  if (((i | cols) >> 31) == 0)
    return static_cast<unsigned>(i) % static_cast<unsigned>(cols);  // many times as fast
  return i % cols;
}

// y = (x - mean) rstd weight + bias.
template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(std::int64_t n, std::int64_t cols, bool vector, const T* x, const T* weight,
                   const T* bias, const T* stats, T* y) {
  constexpr int size = Pack<T>::size;
  const std::int64_t i = thread_index() * size;
  if (i >= n) return;
  const T mean = stats[0], rstd = stats[1];
  Pack<T> pack = load(x + i, vector, n - i, T(0));
  std::int64_t c = column_of(i, cols);
#pragma unroll
  for (int k = 0; k < size; ++k) {
    T v = (pack.v[k] - mean) * rstd;
    if (weight != nullptr) v *= weight[c];
    if (bias != nullptr) v += bias[c];
    pack.v[k] = v;
    c = c + 1 == cols ? 0 : c + 1;
  }
  store(y + i, vector, n - i, pack);
}

// gy xhat and gy.
template <class T>
struct WeightTerms {
  const T *x, *gy, *stats;
  std::int64_t cols;

  __device__ void operator()(std::int64_t row, std::int64_t col, double& a, double& b) const {
    const std::int64_t i = row * cols + col;
    b = static_cast<double>(gy[i]);
    a = b * static_cast<double>((x[i] - stats[0]) * stats[1]);
  }
};

// sums(2, cols) -> gweight, gbias, and means of h = gy weight and of h xhat: {mean(h), mean(h
// xhat)}.
template <class T>
__global__ void __launch_bounds__(kThreads)
    means_kernel(std::int64_t rows, std::int64_t cols, const double* sums, const T* weight,
                 T* gweight, T* gbias, T* means) {
  double shift = 0, along = 0;
  for (std::int64_t c = threadIdx.x; c < cols; c += kThreads) {
    const double w = weight != nullptr ? static_cast<double>(weight[c]) : 1.0;
    along += w * sums[c];
    shift += w * sums[cols + c];
    if (gweight != nullptr) gweight[c] = static_cast<T>(sums[c]);
    if (gbias != nullptr) gbias[c] = static_cast<T>(sums[cols + c]);
  }
  shift = block_reduce<kThreads>(shift, Sum(), 0.0);
  along = block_reduce<kThreads>(along, Sum(), 0.0);
  if (threadIdx.x > 0) return;
  const double total = static_cast<double>(rows) * static_cast<double>(cols);
  means[0] = static_cast<T>(shift / total);
  means[1] = static_cast<T>(along / total);
}

// gx = rstd (gy weight - mean(h) - xhat mean(h xhat)).
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(std::int64_t n, std::int64_t cols, bool vector, const T* x, const T* weight,
                    const T* stats, const T* means, const T* gy, T* gx) {
  constexpr int size = Pack<T>::size;
  const std::int64_t i = thread_index() * size;
  if (i >= n) return;
  const T mean = stats[0], rstd = stats[1], shift = means[0], along = means[1];
  const Pack<T> v = load(x + i, vector, n - i, T(0));
  Pack<T> g = load(gy + i, vector, n - i, T(0));
  std::int64_t c = column_of(i, cols);
#pragma unroll
  for (int k = 0; k < size; ++k) {
    const T h = weight != nullptr ? g.v[k] * weight[c] : g.v[k];
    g.v[k] = rstd * (h - shift - (v.v[k] - mean) * rstd * along);
    c = c + 1 == cols ? 0 : c + 1;
  }
  store(gx + i, vector, n - i, g);
}

}  // namespace

template <class T>
void graph_layer_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight,
                      const T* bias, T* y, T* stats) {
  constexpr std::int64_t size = Pack<T>::size;
  const std::int64_t n = rows * cols, even = (n + kMostBlocks - 1) / kMostBlocks,
                     length =
                         ((even > kLeastElements ? even : kLeastElements) + size - 1) / size * size,
                     blocks = (n + length - 1) / length;
  const Scratch<double> partial(2 * blocks);
  launch(moments_kernel<T>, blocks_for(blocks, 1), kThreads, 0, n, length, aligned(x), x,
         partial.get());
  launch(stats_kernel<T>, 1, kThreads, 0, n, blocks, eps, x, partial.get(), stats);
  launch(forward_kernel<T>, blocks_for(n, kThreads * size), kThreads, 0, n, cols, aligned(x, y), x,
         weight, bias, stats, y);
}

template <class T>
void graph_layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight,
                               const T* stats, const T* gy, T* gx, T* gweight, T* gbias) {
  const std::int64_t n = rows * cols;
  const Scratch<double> sums(2 * cols);
  const Scratch<T> means(2);
  column_pairs(rows, cols, WeightTerms<T>{x, gy, stats, cols}, sums.get());
  launch(means_kernel<T>, 1, kThreads, 0, rows, cols, sums.get(), weight, gweight, gbias,
         means.get());
  if (gx == nullptr) return;
  launch(backward_kernel<T>, blocks_for(n, kThreads * Pack<T>::size), kThreads, 0, n, cols,
         aligned(x, gy, gx), x, weight, stats, means.get(), gy, gx);
}

#define INSTANTIATE(T)                                                                             \
  template void graph_layer_norm(std::int64_t, std::int64_t, double, const T*, const T*, const T*, \
                                 T*, T*);                                                          \
  template void graph_layer_norm_backward(std::int64_t, std::int64_t, const T*, const T*,          \
                                          const T*, const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
