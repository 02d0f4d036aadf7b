// Sums over rows, for one Highway target: included once per target, like simd-inl.h, by *_cpu.cpp
// files that cut their rows with column_blocks.h.

#if defined(LIPGRAD_OPS_KERNELS_COLUMN_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_OPS_KERNELS_COLUMN_SUMS_INL_H
#undef LIPGRAD_OPS_KERNELS_COLUMN_SUMS_INL_H
#else
#define LIPGRAD_OPS_KERNELS_COLUMN_SUMS_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// Rows that are summed before the sum is added: short chains, and fewer passes over the sums.
inline constexpr std::int64_t sum_height = 8;

// sums(cols) += value(r, c, count) over r < height <= sum_height, where value gives the `count`
// elements from column c on.
template <class T, class F>
HWY_INLINE void add_sums(std::int64_t height, std::int64_t cols, T* sums, F value) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t c = 0; c < cols; c += lanes) {
    const std::int64_t count = std::min(lanes, cols - c);
    Simd<T> sum;
    if (height == sum_height) {
      sum =
          ((value(0, c, count) + value(1, c, count)) + (value(2, c, count) + value(3, c, count))) +
          ((value(4, c, count) + value(5, c, count)) + (value(6, c, count) + value(7, c, count)));
    } else {
      sum = value(0, c, count);
      for (std::int64_t r = 1; r < height; ++r) sum = sum + value(r, c, count);
    }
    put(get(sums + c, count) + sum, sums + c, count);
  }
}

// sums(cols) += the column sums of x(height, cols).
template <class T>
HWY_INLINE void add_columns(std::int64_t height, std::int64_t cols, const T* x, T* sums) {
  add_sums(height, cols, sums, [=](std::int64_t r, std::int64_t c, std::int64_t count) HWY_ATTR {
    return get(x + r * cols + c, count);
  });
}

// Calls f(first, height) for pieces of sum_height rows.
template <class F>
HWY_INLINE void for_heights(std::int64_t rows, F f) {
  for (std::int64_t r = 0; r < rows; r += sum_height) f(r, std::min(sum_height, rows - r));
}

// <a, b> of a row; |a - b|^2.
template <class T>
HWY_INLINE T dot_row(std::int64_t n, const T* a, const T* b) {
  const std::int64_t lanes = Simd<T>::lanes();
  Simd<T> sum(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    sum = fma(get(a + i, count), get(b + i, count), sum);
  }
  return sum_of_lanes(sum);
}
template <class T>
HWY_INLINE T distance_row(std::int64_t n, const T* a, const T* b) {
  const std::int64_t lanes = Simd<T>::lanes();
  Simd<T> sum(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const Simd<T> d = get(a + i, count) - get(b + i, count);
    sum = fma(d, d, sum);
  }
  return sum_of_lanes(sum);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
