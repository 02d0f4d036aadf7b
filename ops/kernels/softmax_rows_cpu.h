#pragma once

// How the softmax kernels cut an array (outer, n, inner): rows where inner is 1, else groups of
// columns.

#include <lipgrad/ops/kernels/rows_cpu.h>

namespace lipgrad::cpu {

// Columns that one group holds: a cache line of floats.
inline constexpr std::int64_t column_group = 16;

// Calls rows(first, count), or columns(offset, width) for groups of neighbouring columns that start
// `offset` elements into the array, on the threads.
template <class Rows, class Columns>
void for_groups(std::int64_t outer, std::int64_t n, std::int64_t inner, std::int64_t grain,
                Rows rows, Columns columns) {
  if (outer == 0 || n == 0 || inner == 0) return;
  if (inner == 1) {
    parallel_for(outer, rows_per_block(grain, n),
                 [&](std::int64_t begin, std::int64_t end) { rows(begin, end - begin); });
    return;
  }
  const std::int64_t groups = (inner + column_group - 1) / column_group;
  parallel_for(outer * groups, rows_per_block(grain, n * std::min(inner, column_group)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t c = i % groups * column_group;
                   columns(i / groups * n * inner + c, std::min(column_group, inner - c));
                 }
               });
}

// The functions of one type and target, as tables.
template <class T>
struct SoftmaxRows {
  void (*rows)(std::int64_t rows, std::int64_t n, const T* x, const std::uint8_t* mask, T* y);
  void (*columns)(std::int64_t n, std::int64_t inner, std::int64_t width, const T* x,
                  const std::uint8_t* mask, T* y);
};

template <class T>
void run_softmax(SoftmaxRows<T> f, std::int64_t outer, std::int64_t n, std::int64_t inner,
                 const T* x, const std::uint8_t* mask, T* y) {
  for_groups(
      outer, n, inner, costly_grain,
      [&](std::int64_t first, std::int64_t count) {
        f.rows(count, n, x + first * n, mask ? mask + first * n : nullptr, y + first * n);
      },
      [&](std::int64_t at, std::int64_t width) {
        f.columns(n, inner, width, x + at, mask ? mask + at : nullptr, y + at);
      });
}

template <class T>
struct SoftmaxBackwardRows {
  void (*rows)(std::int64_t rows, std::int64_t n, const T* y, const T* gy, T* gx);
  void (*columns)(std::int64_t n, std::int64_t inner, std::int64_t width, const T* y, const T* gy,
                  T* gx);
};

template <class T>
void run_softmax_backward(SoftmaxBackwardRows<T> f, std::int64_t outer, std::int64_t n,
                          std::int64_t inner, const T* y, const T* gy, T* gx) {
  for_groups(
      outer, n, inner, costly_grain,
      [&](std::int64_t first, std::int64_t count) {
        f.rows(count, n, y + first * n, gy + first * n, gx + first * n);
      },
      [&](std::int64_t at, std::int64_t width) {
        f.columns(n, inner, width, y + at, gy + at, gx + at);
      });
}

// For max and logsumexp: the largest of a row, sum exp(x - top), groups of columns, gradients.
template <class T>
struct MaxRows {
  T (*top)(std::int64_t n, const T* x);
  double (*exp_sum)(std::int64_t n, const T* x, T top);
  void (*columns)(std::int64_t n, std::int64_t ld, std::int64_t width, const T* x, T* y);
  void (*backward_row)(std::int64_t n, const T* x, T y, T gy, T* gx);
  void (*backward_columns)(std::int64_t n, std::int64_t ld, std::int64_t width, const T* x,
                           const T* y, const T* gy, T* gx);
};

}  // namespace lipgrad::cpu
