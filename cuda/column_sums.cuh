#pragma once

// C++17. Sums over rows, for gradients of biases, factors and weights of norms. Which rows are
// added to one another first depends on the sizes alone, whatever the device, and the sums of
// parts are added in double.
//
//   column_sums(rows, cols, x, y);                    y(cols) = the sum of the rows of x(rows,
//   cols) column_sums_of(rows, cols, load, y);              the same for values that load(row, col)
//   gives
//
// The second compiles its own kernel. `load` is a small struct of pointers with
//   __device__ T operator()(std::int64_t row, std::int64_t col) const;
// which is called exactly once for each element, by neighbouring threads for neighbouring columns:
// it may compute the value and also write it somewhere (the gradient of a bias along with that of
// an activation). rows = 0 gives zeros.
//
// A kernel that goes through its rows anyway keeps sums of its own rows and leaves one row of
// doubles for each of its blocks (as many as the sizes say, never the device):
//
//   column_sums(blocks, cols, partial, y);            partial(blocks, cols) in double, y of type T

#include "reduction.cuh"

namespace lipgrad::cuda {

// y(outer, inner) = scale * the sum of x(outer, n, inner) over n, or with `add` y += the sum.
// Defined in reduce.cu for float and double.
template <class T>
void add_up(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale, bool add,
            const T* x, T* y);
// y(cols) = the sum of x(rows, cols) over the rows, from (X, T) = (float, float), (double, double)
// or (double, float).
template <class X, class T>
void column_sums(std::int64_t rows, std::int64_t cols, const X* x, T* y);

// partial(chunks, cols), or y(cols) if chunks is 1, from values that `load` gives.
template <class Load, class T>
__global__ void loaded_sums_kernel(Load load, std::int64_t rows, std::int64_t cols, ColumnCut cut,
                                   double* partial, T* y) {
  LIPGRAD_SHARED(double, part, [kReduceThreads]);
  const int thread = static_cast<int>(threadIdx.x), width = cut.width;
  int tall = kReduceThreads / width;
  const int own = thread / width;
  const std::int64_t tile = blockIdx.x % cut.tiles, chunk = blockIdx.x / cut.tiles,
                     col = tile * width + thread % width;
  double sum = 0;
  if (own < tall && col < cols) {
    const std::int64_t begin = chunk * cut.length,
                       end = begin + cut.length < rows ? begin + cut.length : rows;
    std::int64_t row = begin + own;
    for (; row + 3 * tall < end; row += 4 * tall) {
      const auto a = load(row, col), b = load(row + tall, col);
      const auto c = load(row + 2 * tall, col), d = load(row + 3 * tall, col);
      sum += static_cast<double>((a + b) + (c + d));
    }
    for (; row < end; row += tall) sum += static_cast<double>(load(row, col));
  }
  part[thread] = sum;
  while (tall > 1) {
    const int half = (tall + 1) / 2;
    __syncthreads();
    if (own + half < tall) part[thread] += part[thread + half * width];
    tall = half;
  }
  if (own > 0 || col >= cols) return;
  if (cut.chunks > 1) {
    partial[chunk * cols + col] = part[thread];
  } else {
    y[col] = static_cast<T>(part[thread]);
  }
}

template <class Load, class T>
void column_sums_of(std::int64_t rows, std::int64_t cols, Load load, T* y) {
  if (cols == 0) return;
  const ColumnCut cut(1, rows, cols);
  const Scratch<double> partial(cut.chunks > 1 ? cut.chunks * cols : 0);
  launch(loaded_sums_kernel<Load, T>, blocks_for(cut.tiles * cut.chunks, 1), kReduceThreads, 0,
         load, rows, cols, cut, partial.get(), y);
  if (cut.chunks > 1) column_sums(cut.chunks, cols, static_cast<const double*>(partial.get()), y);
}

}  // namespace lipgrad::cuda
