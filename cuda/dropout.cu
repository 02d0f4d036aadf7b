#include <lipgrad/ops/kernels/dropout.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // elements of a Philox block, one thread each

// x, y: (n). The words are those of the CPU, element by element.
template <class T>
__global__ void dropout_kernel(std::int64_t n, bool vector, std::uint32_t threshold, T factor,
                               std::uint64_t seed, std::uint64_t draw, const T* x, T* y) {
  constexpr int size = Pack<T>::size;
  const std::int64_t index = thread_index(), first = index * kWords;
  if (first >= n) return;
  const PhiloxBlock random = philox(seed, draw, static_cast<std::uint64_t>(index));
#pragma unroll
  for (int start = 0; start < kWords; start += size) {
    const std::int64_t at = first + start;
    Pack<T> pack = load(x + at, vector, n - at, T(0));
#pragma unroll
    for (int k = 0; k < size; ++k)
      pack.v[k] = dropout_keeps(random.word[start + k], threshold) ? pack.v[k] * factor : T(0);
    store(y + at, vector, n - at, pack);
  }
}

// x, y: (rows, cols), n elements in all; rows are kept or dropped as a whole.
template <class T>
__global__ void dropout_rows_kernel(std::int64_t n, std::int64_t cols, bool vector,
                                    std::uint32_t threshold, T factor, std::uint64_t seed,
                                    std::uint64_t draw, const T* x, T* y) {
  const Piece<T> piece(n, vector);
  Pack<T> pack = piece.read(x);
  std::int64_t row = -1;
  bool keeps = false;
#pragma unroll
  for (int k = 0; k < piece.size; ++k) {
    const std::int64_t at = piece.at(k) / cols;
    if (at != row) {
      row = at;
      keeps = dropout_keeps(philox_word(seed, draw, static_cast<std::uint64_t>(row)), threshold);
    }
    pack.v[k] = keeps ? pack.v[k] * factor : T(0);
  }
  piece.write(y, pack);
}

}  // namespace

template <class T>
void dropout_rows(std::int64_t rows, std::int64_t cols, double p, std::uint64_t seed,
                  std::uint64_t draw, const T* x, T* y) {
  const std::int64_t n = rows * cols;
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  launch(dropout_rows_kernel<T>, blocks_for(n, Piece<T>::block), kMapThreads, 0, n, cols,
         aligned(x, y), dropout_threshold(p), static_cast<T>(scale), seed, draw, x, y);
}

template <class T>
void dropout(std::int64_t n, double p, std::uint64_t seed, std::uint64_t draw, const T* x, T* y) {
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  launch(dropout_kernel<T>, blocks_for(n, kThreads * kWords), kThreads, 0, n, aligned(x, y),
         dropout_threshold(p), static_cast<T>(scale), seed, draw, x, y);
}

template void dropout(std::int64_t, double, std::uint64_t, std::uint64_t, const float*, float*);
template void dropout(std::int64_t, double, std::uint64_t, std::uint64_t, const double*, double*);
template void dropout_rows(std::int64_t, std::int64_t, double, std::uint64_t, std::uint64_t,
                           const float*, float*);
template void dropout_rows(std::int64_t, std::int64_t, double, std::uint64_t, std::uint64_t,
                           const double*, double*);

}  // namespace lipgrad::cuda
