#include <algorithm>
#include <vector>

#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {
namespace {

constexpr std::int64_t grain = 1 << 15;

// Sum of a row by halves: the error grows with log n, and the order depends on n alone.
template <class T>
T row_sum(const T* x, std::int64_t n) {
  if (n > 256) {
    const std::int64_t half = (n / 2 + 127) / 128 * 128;
    return row_sum(x, half) + row_sum(x + half, n - half);
  }
  T lane[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) lane[k] += x[i + k];
  T sum = ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
  for (; i < n; ++i) sum += x[i];
  return sum;
}

template <class T>
T total(const T* x, std::int64_t n) {
  if (n <= grain) return row_sum(x, n);
  std::vector<T> partial((n + grain - 1) / grain);
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    partial[begin / grain] = row_sum(x + begin, end - begin);
  });
  return row_sum(partial.data(), static_cast<std::int64_t>(partial.size()));
}

// to(cols) += sum over the rows of from(rows, cols), by halves; `scratch` holds 64 rows.
template <class T>
void add_rows(T* to, const T* from, std::int64_t rows, std::int64_t cols, T* scratch) {
  if (rows <= 32) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) to[c] += from[r * cols + c];
    return;
  }
  const std::int64_t half = rows / 2;
  add_rows(to, from, half, cols, scratch + cols);
  std::fill(scratch, scratch + cols, T{0});
  add_rows(scratch, from + half * cols, rows - half, cols, scratch + cols);
  for (std::int64_t c = 0; c < cols; ++c) to[c] += scratch[c];
}

template <class T>
void column_sums(T* to, const T* from, std::int64_t rows, std::int64_t cols) {
  const std::int64_t block_rows = std::max<std::int64_t>(32, grain / cols);
  if (rows <= block_rows) {
    std::vector<T> scratch(rows <= 32 ? 0 : 64 * cols);
    add_rows(to, from, rows, cols, scratch.data());
    return;
  }
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  std::vector<T> partial(blocks * cols), scratch(64 * cols);
  parallel_for(rows, block_rows, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> own(64 * cols);
    add_rows(partial.data() + begin / block_rows * cols, from + begin * cols, end - begin, cols,
             own.data());
  });
  add_rows(to, partial.data(), blocks, cols, scratch.data());
}

// Any pattern, from dimension `dim` on, serially.
template <class T>
void general(T* to, const T* from, const ReducedBox& box, int dim) {
  if (dim == box.rank) {
    *to += *from;
    return;
  }
  if (dim + 1 == box.rank && !box.kept[dim]) {
    *to += row_sum(from, box.size[dim]);
    return;
  }
  std::int64_t to_step = box.kept[dim] ? 1 : 0, from_step = 1;
  for (int i = dim + 1; i < box.rank; ++i) {
    from_step *= box.size[i];
    if (box.kept[i]) to_step *= box.size[i];
  }
  for (std::int64_t i = 0; i < box.size[dim]; ++i)
    general(to + i * to_step, from + i * from_step, box, dim + 1);
}

}  // namespace

template <class T>
void accumulate(const ReducedBox& box, T* to, const T* from) {
  std::int64_t n = 1;
  for (int i = 0; i < box.rank; ++i) n *= box.size[i];
  if (n == 0) return;
  if (box.rank == 0) {
    *to += *from;
  } else if (box.rank == 1 && box.kept[0]) {
    parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
    });
  } else if (box.rank == 1) {
    *to += total(from, n);
  } else if (box.rank == 2 && box.kept[1]) {
    column_sums(to, from, box.size[0], box.size[1]);
  } else if (box.kept[0]) {
    const std::int64_t inner = n / box.size[0];
    std::int64_t to_inner = 1;
    for (int i = 1; i < box.rank; ++i)
      if (box.kept[i]) to_inner *= box.size[i];
    parallel_for(box.size[0], std::max<std::int64_t>(1, grain / inner),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     general(to + i * to_inner, from + i * inner, box, 1);
                 });
  } else {
    general(to, from, box, 0);
  }
}

template <class T>
void fill(T* x, std::int64_t n, T value) {
  parallel_for(n, 2 * grain,
               [&](std::int64_t begin, std::int64_t end) { std::fill(x + begin, x + end, value); });
}

template void accumulate<float>(const ReducedBox&, float*, const float*);
template void accumulate<double>(const ReducedBox&, double*, const double*);
template void fill<float>(float*, std::int64_t, float);
template void fill<double>(double*, std::int64_t, double);
template void fill<std::int32_t>(std::int32_t*, std::int64_t, std::int32_t);
template void fill<std::int64_t>(std::int64_t*, std::int64_t, std::int64_t);
template void fill<std::uint8_t>(std::uint8_t*, std::int64_t, std::uint8_t);

}  // namespace lipgrad::cpu
