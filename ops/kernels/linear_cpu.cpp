#include <lipgrad/ops/kernels/linear.h>

#include <algorithm>
#include <memory>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {

template <class T>
void linear(Activation f, double a, std::int64_t rows, std::int64_t in, std::int64_t out,
            const T* x, const T* weight, const T* bias, T* pre, T* y) {
  T* z = pre ? pre : y;
  auto finish = [&](std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) {
    const std::int64_t at = i0 * out + j0;
    const T* b = bias ? bias + j0 : nullptr;
    if (!pre) return bias_activation_block(f, a, i1 - i0, j1 - j0, out, y + at, b, out, y + at);
    bias_activation_block(Activation::identity, a, i1 - i0, j1 - j0, out, pre + at, b, out,
                          pre + at);
    bias_activation_block<T>(f, a, i1 - i0, j1 - j0, out, pre + at, nullptr, out, y + at);
  };
  gemm<T>(false, true, rows, out, in, T(1), x, in, weight, in, T(0), z, out,
          bias || pre || f != Activation::identity ? GemmEpilogue(finish) : GemmEpilogue());
}

template <class T>
void linear_backward_bias(Activation f, double a, std::int64_t rows, std::int64_t cols,
                          const T* saved, const T* gy, T* gz, T* gbias) {
  // Blocks of rows, each with its own sums; these are added in the order of the blocks.
  constexpr std::int64_t block_elements = 16384;
  if (gbias) std::fill(gbias, gbias + cols, T(0));
  if (rows == 0 || cols == 0) return;
  const std::int64_t block = std::max<std::int64_t>(8, block_elements / cols);
  const std::int64_t blocks = (rows + block - 1) / block;
  const auto sums = std::make_unique_for_overwrite<T[]>(gbias ? blocks * cols : 0);
  parallel_for(blocks, 1, [&](std::int64_t index, std::int64_t) {
    const std::int64_t begin = index * block, end = std::min(rows, begin + block);
    const T* g = gy;
    if (f != Activation::identity) {
      activation_backward(f, a, (end - begin) * cols, saved + begin * cols, gy + begin * cols,
                          gz + begin * cols);
      g = gz;
    }
    if (!gbias) return;
    T* sum = sums.get() + index * cols;
    std::copy(g + begin * cols, g + (begin + 1) * cols, sum);
    for (std::int64_t i = begin + 1; i < end; ++i) {
      const T* row = g + i * cols;
      for (std::int64_t j = 0; j < cols; ++j) sum[j] += row[j];
    }
  });
  if (!gbias) return;
  for (std::int64_t index = 0; index < blocks; ++index) {
    const T* sum = sums.get() + index * cols;
    for (std::int64_t j = 0; j < cols; ++j) gbias[j] += sum[j];
  }
}

template <class T>
void transpose(std::int64_t rows, std::int64_t cols, const T* x, T* y) {
  constexpr std::int64_t tile = 32;  // a tile of x and one of y stay in the first cache
  const std::int64_t bands = (cols + tile - 1) / tile;
  parallel_for(bands, std::max<std::int64_t>(1, 32768 / (tile * std::max<std::int64_t>(rows, 1))),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t band = begin; band < end; ++band) {
                   const std::int64_t j0 = band * tile, j1 = std::min(cols, j0 + tile);
                   for (std::int64_t i0 = 0; i0 < rows; i0 += tile) {
                     const std::int64_t i1 = std::min(rows, i0 + tile);
                     for (std::int64_t j = j0; j < j1; ++j)
                       for (std::int64_t i = i0; i < i1; ++i) y[j * rows + i] = x[i * cols + j];
                   }
                 }
               });
}

#define INSTANTIATE(T)                                                                         \
  template void linear(Activation, double, std::int64_t, std::int64_t, std::int64_t, const T*, \
                       const T*, const T*, T*, T*);                                            \
  template void linear_backward_bias(Activation, double, std::int64_t, std::int64_t, const T*, \
                                     const T*, T*, T*);                                        \
  template void transpose(std::int64_t, std::int64_t, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
