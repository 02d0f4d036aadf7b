#pragma once

// C++17. Two sums over rows at once, in double, of values that are read once. The rows are cut by
// their number alone.

#include "column_sums.cuh"

namespace lipgrad::cuda {

inline constexpr int kPairThreads = 256;

// partial(blocks, 2, cols) from blocks of `length` rows and tiles of `width` columns.
template <class Load>
__global__ void __launch_bounds__(kPairThreads)
    pairs_kernel(Load load, std::int64_t rows, std::int64_t cols, std::int64_t length,
                 std::int64_t tiles, int width, double* partial) {
  LIPGRAD_SHARED(double, part, [2][kPairThreads]);
  const int thread = static_cast<int>(threadIdx.x), own = thread / width;
  int tall = kPairThreads / width;
  const std::int64_t block = blockIdx.x / tiles, col = blockIdx.x % tiles * width + thread % width,
                     begin = block * length, end = begin + length < rows ? begin + length : rows;
  double a = 0, b = 0;
  if (col < cols)
#pragma unroll 4
    for (std::int64_t row = begin + own; row < end; row += tall) {
      double x = 0, y = 0;
      load(row, col, x, y);
      a += x;
      b += y;
    }
  part[0][thread] = a;
  part[1][thread] = b;
  while (tall > 1) {
    tall /= 2;
    __syncthreads();
    if (own < tall) {
      part[0][thread] += part[0][thread + tall * width];
      part[1][thread] += part[1][thread + tall * width];
    }
  }
  if (own > 0 || col >= cols) return;
  partial[block * 2 * cols + col] = part[0][thread];
  partial[(block * 2 + 1) * cols + col] = part[1][thread];
}

// sums(2, cols): the sums over the rows of the two values that load(row, col, a, b) sets.
template <class Load, class T>
void column_pairs(std::int64_t rows, std::int64_t cols, const Load& load, T* sums) {
  if (cols == 0) return;
  constexpr std::int64_t least = 64, most_blocks = 512;
  const std::int64_t even = (rows + most_blocks - 1) / most_blocks,
                     length = even > least ? even : least, blocks = (rows + length - 1) / length;
  int width = 1;
  while (width < kWarp && width < cols) width *= 2;
  const std::int64_t tiles = (cols + width - 1) / width;
  const Scratch<double> partial(blocks * 2 * cols);
  launch(pairs_kernel<Load>, blocks_for(blocks * tiles, 1), kPairThreads, 0, load, rows, cols,
         length, tiles, width, partial.get());
  column_sums(blocks, 2 * cols, static_cast<const double*>(partial.get()), sums);
}

}  // namespace lipgrad::cuda
