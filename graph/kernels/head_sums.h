#pragma once

// Private to the CPU kernels: numbers of (node, head), by blocks that depend on the sizes alone.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {

// Numbers that make a block worth its while: some tens of microseconds.
inline constexpr std::int64_t kHeadGrain = 8192;

// Nodes of a block.
inline std::int64_t head_rows(std::int64_t heads) {
  return std::max<std::int64_t>(1, kHeadGrain / heads);
}

// f(i, h) for all of them, on all threads.
template <class F>
void each_head(std::int64_t nodes, std::int64_t heads, F&& f) {
  parallel_for(nodes, head_rows(heads), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t h = 0; h < heads; ++h) f(i, h);
  });
}

// sums[h] = sum_i x[i, h], the rows of x being `stride` apart.
template <class T>
std::vector<double> head_sums(std::int64_t nodes, std::int64_t heads, std::int64_t stride,
                              const T* x) {
  const std::int64_t rows = head_rows(heads), blocks = (nodes + rows - 1) / rows;
  std::vector<double> parts(static_cast<std::size_t>(blocks * heads));
  each_head(nodes, heads, [&](std::int64_t i, std::int64_t h) {
    parts[static_cast<std::size_t>(i / rows * heads + h)] += static_cast<double>(x[i * stride + h]);
  });
  std::vector<double> sums(static_cast<std::size_t>(heads));
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t h = 0; h < heads; ++h) sums[h] += parts[b * heads + h];
  return sums;
}

}  // namespace lipgrad::cpu
