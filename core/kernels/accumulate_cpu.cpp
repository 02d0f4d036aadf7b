#include <algorithm>
#include <vector>

#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/threads.h>

namespace lipgrad::cpu {
namespace {

constexpr std::int64_t grain = 1 << 15;

// The dimensions of `from`, neighbours of one kind merged: each is either kept or summed.
struct Dims {
  std::int64_t size[Shape::max_rank];
  bool kept[Shape::max_rank];
  int count = 0;
};

Dims merged(const Shape& to, const Shape& from) {
  Dims dims;
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] == 1) continue;
    const int j = i - (from.rank() - to.rank());
    const bool kept = j >= 0 && to[j] != 1;
    if (dims.count > 0 && dims.kept[dims.count - 1] == kept) {
      dims.size[dims.count - 1] *= from[i];
    } else {
      dims.size[dims.count] = from[i];
      dims.kept[dims.count++] = kept;
    }
  }
  return dims;
}

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
void general(T* to, const T* from, const Dims& dims, int dim) {
  if (dim == dims.count) {
    *to += *from;
    return;
  }
  if (dim + 1 == dims.count && !dims.kept[dim]) {
    *to += row_sum(from, dims.size[dim]);
    return;
  }
  std::int64_t to_step = dims.kept[dim] ? 1 : 0, from_step = 1;
  for (int i = dim + 1; i < dims.count; ++i) {
    from_step *= dims.size[i];
    if (dims.kept[i]) to_step *= dims.size[i];
  }
  for (std::int64_t i = 0; i < dims.size[dim]; ++i)
    general(to + i * to_step, from + i * from_step, dims, dim + 1);
}

}  // namespace

template <class T>
void accumulate(T* to, const Shape& to_shape, const T* from, const Shape& from_shape) {
  const std::int64_t n = from_shape.numel();
  if (n == 0) return;
  const Dims dims = merged(to_shape, from_shape);
  if (dims.count == 0) {
    *to += *from;
  } else if (dims.count == 1 && dims.kept[0]) {
    parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
    });
  } else if (dims.count == 1) {
    *to += total(from, n);
  } else if (dims.count == 2 && dims.kept[1]) {
    column_sums(to, from, dims.size[0], dims.size[1]);
  } else if (dims.kept[0]) {
    const std::int64_t inner = n / dims.size[0];
    std::int64_t to_inner = 1;
    for (int i = 1; i < dims.count; ++i)
      if (dims.kept[i]) to_inner *= dims.size[i];
    parallel_for(dims.size[0], std::max<std::int64_t>(1, grain / inner),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     general(to + i * to_inner, from + i * inner, dims, 1);
                 });
  } else {
    general(to, from, dims, 0);
  }
}

template void accumulate<float>(float*, const Shape&, const float*, const Shape&);
template void accumulate<double>(double*, const Shape&, const double*, const Shape&);

}  // namespace lipgrad::cpu
