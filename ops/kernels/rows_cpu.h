#pragma once

// How elementwise kernels cut their work. Blocks depend on the shape alone.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/broadcast.h>

namespace lipgrad::cpu {

// Elements a block holds: enough work (some 5 to 10 microseconds) to be worth handing to a thread.
inline constexpr std::int64_t cheap_grain = 32768;  // arithmetic
inline constexpr std::int64_t costly_grain = 8192;  // exp and the like

// Rows a block holds when each costs `cost` elements of work.
inline std::int64_t rows_per_block(std::int64_t grain, std::int64_t cost) {
  return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, cost));
}

// The sum of f(begin, end) over fixed pieces of [0, n), added in order.
template <class F>
double sum_of_blocks(std::int64_t n, std::int64_t grain, F f) {
  if (n <= grain) return n > 0 ? f(std::int64_t{0}, n) : 0.0;
  std::vector<double> partial((n + grain - 1) / grain);
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    partial[begin / grain] = f(begin, end);
  });
  double sum = 0;
  for (double p : partial) sum += p;
  return sum;
}

template <class T>
using UnaryRow = void (*)(double a, double b, std::int64_t n, const T* x, T* y);
template <class T>
using BackwardRow = void (*)(double a, double b, std::int64_t n, const T* saved, const T* gy,
                             T* gx);
template <class T>
using BinaryRow = void (*)(std::int64_t n, const T* u, std::int64_t su, const T* v, std::int64_t sv,
                           T* y);
template <class T>
using TernaryRow = void (*)(std::int64_t n, const T* u, std::int64_t su, const T* v,
                            std::int64_t sv, const T* g, std::int64_t sg, T* y);

// Calls f(offsets, at, n) for the innermost rows of a collapsed broadcast shape, long rows in
// pieces: operand k starts at offsets[k] and steps stride[k][rank - 1], the result starts at `at`.
template <class F>
void for_rows(const Broadcast& s, int operands, std::int64_t grain, F f) {
  if (s.numel == 0) return;
  std::int64_t offsets[Broadcast::max_operands] = {};
  if (s.rank == 0) return f(offsets, std::int64_t{0}, std::int64_t{1});
  const int last = s.rank - 1;
  const std::int64_t inner = s.size[last];
  const std::int64_t pieces = (inner + grain - 1) / grain;  // of one row
  const std::int64_t items = s.numel / inner * pieces;
  const std::int64_t items_per_block = pieces > 1 ? 1 : std::max<std::int64_t>(1, grain / inner);
  parallel_for(items, items_per_block, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t offset[Broadcast::max_operands] = {};
    std::int64_t index[Broadcast::max_rank] = {};
    std::int64_t row = begin / pieces;
    for (std::int64_t d = last - 1, rest = row; d >= 0; --d) {
      index[d] = rest % s.size[d];
      rest /= s.size[d];
      for (int k = 0; k < operands; ++k) offset[k] += index[d] * s.stride[k][d];
    }
    for (std::int64_t item = begin; item < end; ++item) {
      if (pieces > 1) {
        const std::int64_t start = item % pieces * grain;
        std::int64_t moved[Broadcast::max_operands];
        for (int k = 0; k < operands; ++k) moved[k] = offset[k] + start * s.stride[k][last];
        f(moved, row * inner + start, std::min(grain, inner - start));
        if ((item + 1) % pieces != 0) continue;
      } else {
        f(offset, row * inner, inner);
      }
      ++row;
      for (int d = last - 1; d >= 0; --d) {  // the odometer
        for (int k = 0; k < operands; ++k) offset[k] += s.stride[k][d];
        if (++index[d] < s.size[d]) break;
        for (int k = 0; k < operands; ++k) offset[k] -= index[d] * s.stride[k][d];
        index[d] = 0;
      }
    }
  });
}

}  // namespace lipgrad::cpu
