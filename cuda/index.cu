#include <lipgrad/ops/kernels/index.h>

#include "sort.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTerms = 512;  // of a row that are added one after another

// How many neighbouring threads, a power of two, share the n units of a row.
int lanes_for(std::int64_t n) {
  int lanes = 1;
  while (lanes < kThreads && lanes < n) lanes *= 2;
  return lanes;
}

// The row and the first unit of this thread where `lanes` threads share a row; blocks beside one
// another along y take further units of the same rows.
struct Place {
  std::int64_t row, unit, step;
  __device__ explicit Place(int lanes)
      : row(static_cast<std::int64_t>(blockIdx.x) * (kThreads / lanes) +
            static_cast<int>(threadIdx.x) / lanes),
        unit(static_cast<std::int64_t>(blockIdx.y) * lanes + static_cast<int>(threadIdx.x) % lanes),
        step(static_cast<std::int64_t>(gridDim.y) * lanes) {}
};
dim3 grid_for(std::int64_t rows, std::int64_t units, int lanes) {
  const std::int64_t beside = (units + lanes - 1) / lanes;
  return dim3(blocks_for(rows, kThreads / lanes), static_cast<unsigned>(beside < 1      ? 1
                                                                        : beside > 1024 ? 1024
                                                                                        : beside));
}

template <class Index>
__device__ bool in_range(Index index, std::int64_t rows) {
  return index >= 0 && static_cast<std::int64_t>(index) < rows;
}

struct alignas(16) Bytes16 {
  std::uint32_t v[4];
};

// x: (rows, units), index: (count), y: (count, units). Elements are moved, whatever they are.
template <class Unit, class Index>
__global__ void gather_kernel(std::int64_t rows, std::int64_t count, std::int64_t units, int lanes,
                              const Unit* x, const Index* index, Unit* y, Faults* faults) {
  const Place place(lanes);
  if (place.row >= count) return;
  const Index from = index[place.row];
  const bool valid = in_range(from, rows);
  if (!valid && place.unit == 0) report(faults, Fault::index, place.row, rows);
  const std::int64_t source = valid ? static_cast<std::int64_t>(from) * units : 0;
  for (std::int64_t u = place.unit; u < units; u += place.step)
    y[place.row * units + u] = valid ? x[source + u] : Unit{};
}

template <class Unit, class Index>
void gather(std::int64_t rows, std::int64_t count, std::int64_t units, const void* x,
            const Index* index, void* y) {
  const int lanes = lanes_for(units);
  launch(gather_kernel<Unit, Index>, grid_for(count, units, lanes), kThreads, 0, rows, count, units,
         lanes, static_cast<const Unit*>(x), index, static_cast<Unit*>(y), faults());
}

// keys(count): the rows that the indices name, `rows` for one at fault; positions: 0, 1, ...
template <class Index, class W>
__global__ void keys_kernel(std::int64_t rows, std::int64_t count, const Index* index, W* keys,
                            W* positions, Faults* faults) {
  const std::int64_t i = thread_index();
  if (i >= count) return;
  const bool valid = in_range(index[i], rows);
  if (!valid) report(faults, Fault::index, i, rows);
  keys[i] = static_cast<W>(valid ? static_cast<std::int64_t>(index[i]) : rows);
  positions[i] = static_cast<W>(i);
}

// first(rows + 1): where each row begins among the sorted keys.
template <class W>
__global__ void first_kernel(std::int64_t rows, std::int64_t count, const W* keys, W* first) {
  const std::int64_t r = thread_index();
  if (r > rows) return;
  std::int64_t low = 0, high = count;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (static_cast<std::int64_t>(keys[middle]) < r) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  first[r] = static_cast<W>(low);
}

// The sum of x[positions[k]] for begin <= k < end, one after another, of the elements of a pack
// that begins `at` in each row; `left` of them are there.
template <class T, class W>
__device__ Pack<T> add_rows(std::int64_t begin, std::int64_t end, std::int64_t cols,
                            const W* positions, const T* x, std::int64_t at, bool vector,
                            std::int64_t left) {
  constexpr int size = Pack<T>::size, ahead = 4;
  Pack<T> sum;
#pragma unroll
  for (int k = 0; k < size; ++k)
    sum.v[k] = begin < end ? -T(0) : T(0);  // -0 + x is x, whatever its sign
  std::int64_t i = begin;
  for (; i + ahead <= end; i += ahead) {
    Pack<T> row[ahead];
#pragma unroll
    for (int j = 0; j < ahead; ++j)
      row[j] =
          load(x + static_cast<std::int64_t>(positions[i + j]) * cols + at, vector, left, T(0));
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
#pragma unroll
      for (int k = 0; k < size; ++k) sum.v[k] += row[j].v[k];
    }
  }
  for (; i < end; ++i) {
    const Pack<T> row =
        load(x + static_cast<std::int64_t>(positions[i]) * cols + at, vector, left, T(0));
#pragma unroll
    for (int k = 0; k < size; ++k) sum.v[k] += row.v[k];
  }
  return sum;
}

// Rows of more than kTerms terms are cut in pieces of as many, the first of which is left to
// sum_kernel. The sorted terms are cut in tiles of kTerms: no two of these pieces begin in the same
// tile, so that partial(tiles, cols) has a place for each.
template <class T, class W>
__global__ void piece_kernel(std::int64_t rows, std::int64_t tiles, std::int64_t cols, int lanes,
                             bool vector, const W* keys, const W* positions, const W* first,
                             const T* x, T* partial) {
  constexpr int size = Pack<T>::size;
  const Place place(lanes);
  if (place.row >= tiles) return;
  const std::int64_t tile = place.row * kTerms, row = static_cast<std::int64_t>(keys[tile]);
  if (row >= rows) return;
  const std::int64_t begin = first[row], end = first[row + 1];
  const std::int64_t start = begin + (tile - begin + kTerms - 1) / kTerms * kTerms;
  if (start == begin || start >= end) return;
  const std::int64_t stop = start + kTerms < end ? start + kTerms : end;
  for (std::int64_t at = place.unit * size; at < cols; at += place.step * size)
    store(partial + place.row * cols + at, vector, cols - at,
          add_rows(start, stop, cols, positions, x, at, vector, cols - at));
}

// y: (rows, cols), x: (count, cols).
template <class T, class W>
__global__ void sum_kernel(std::int64_t rows, std::int64_t cols, int lanes, bool vector,
                           const W* positions, const W* first, const T* x, const T* partial, T* y) {
  constexpr int size = Pack<T>::size;
  const Place place(lanes);
  if (place.row >= rows) return;
  const std::int64_t begin = first[place.row], end = first[place.row + 1];
  const std::int64_t stop = begin + kTerms < end ? begin + kTerms : end;
  for (std::int64_t at = place.unit * size; at < cols; at += place.step * size) {
    Pack<T> sum = add_rows(begin, stop, cols, positions, x, at, vector, cols - at);
    if (stop < end) {
      double total[size];
#pragma unroll
      for (int k = 0; k < size; ++k) total[k] = static_cast<double>(sum.v[k]);
      std::int64_t tile = begin / kTerms + 1;
      for (std::int64_t start = stop; start < end; start += kTerms, ++tile) {
        const Pack<T> piece = load(partial + tile * cols + at, vector, cols - at, T(0));
#pragma unroll
        for (int k = 0; k < size; ++k) total[k] += static_cast<double>(piece.v[k]);
      }
#pragma unroll
      for (int k = 0; k < size; ++k) sum.v[k] = static_cast<T>(total[k]);
    }
    store(y + place.row * cols + at, vector, cols - at, sum);
  }
}

template <class W, class T, class Index>
void scatter(std::int64_t rows, std::int64_t count, std::int64_t cols, const T* x,
             const Index* index, T* y) {
  const Scratch<W> memory(4 * count + rows + 1);
  W* keys = memory.get();
  W *positions = keys + count, *spare_keys = keys + 2 * count, *spare_positions = keys + 3 * count;
  W* const first = keys + 4 * count;
  launch(keys_kernel<Index, W>, blocks_for(count, 256), 256, 0, rows, count, index, keys, positions,
         faults());
  if (rows == 0 || cols == 0) return;
  sort_by_key(count, static_cast<W>(rows), keys, positions, spare_keys, spare_positions);
  launch(first_kernel<W>, blocks_for(rows + 1, 256), 256, 0, rows, count,
         static_cast<const W*>(keys), first);
  constexpr int size = Pack<T>::size;
  const std::int64_t units = (cols + size - 1) / size, tiles = (count + kTerms - 1) / kTerms;
  const int lanes = lanes_for(units);
  const bool vector = aligned(x, y) && cols % size == 0;
  const Scratch<T> partial(count > kTerms ? tiles * cols : 0);
  if (count > kTerms)
    launch(piece_kernel<T, W>, grid_for(tiles, units, lanes), kThreads, 0, rows, tiles, cols, lanes,
           vector, static_cast<const W*>(keys), static_cast<const W*>(positions),
           static_cast<const W*>(first), x, partial.get());
  launch(sum_kernel<T, W>, grid_for(rows, units, lanes), kThreads, 0, rows, cols, lanes, vector,
         static_cast<const W*>(positions), static_cast<const W*>(first), x,
         static_cast<const T*>(partial.get()), y);
}

}  // namespace

template <class T, class Index>
void gather_rows(std::int64_t rows, std::int64_t count, std::int64_t cols, const T* x,
                 const Index* index, T* y) {
  const std::int64_t bytes = cols * static_cast<std::int64_t>(sizeof(T));
  const auto both = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y) |
                    static_cast<std::uintptr_t>(bytes);
  if (both % 16 == 0) return gather<Bytes16>(rows, count, bytes / 16, x, index, y);
  if (both % 4 == 0) return gather<std::uint32_t>(rows, count, bytes / 4, x, index, y);
  gather<std::uint8_t>(rows, count, bytes, x, index, y);
}

template <class T, class Index>
void scatter_add_rows(std::int64_t rows, std::int64_t count, std::int64_t cols, const T* x,
                      const Index* index, T* y) {
  constexpr std::int64_t narrow = 0xffffffff;
  if (count == 0) {
    if (rows * cols > 0)
      check(cudaMemsetAsync(y, 0, static_cast<std::size_t>(rows * cols) * sizeof(T), stream()),
            "cudaMemset");
    return;
  }
  if (rows < narrow && count < narrow) {
    scatter<std::uint32_t>(rows, count, cols, x, index, y);
  } else {
    scatter<std::uint64_t>(rows, count, cols, x, index, y);
  }
}

#define INSTANTIATE_GATHER(T, Index) \
  template void gather_rows(std::int64_t, std::int64_t, std::int64_t, const T*, const Index*, T*);
#define INSTANTIATE(T, Index)                                                                      \
  INSTANTIATE_GATHER(T, Index)                                                                     \
  template void scatter_add_rows(std::int64_t, std::int64_t, std::int64_t, const T*, const Index*, \
                                 T*);
#define INSTANTIATE_ALL(Index)            \
  INSTANTIATE(float, Index)               \
  INSTANTIATE(double, Index)              \
  INSTANTIATE_GATHER(std::int32_t, Index) \
  INSTANTIATE_GATHER(std::int64_t, Index) \
  INSTANTIATE_GATHER(std::uint8_t, Index)
INSTANTIATE_ALL(std::int32_t)
INSTANTIATE_ALL(std::int64_t)
#undef INSTANTIATE_ALL
#undef INSTANTIATE
#undef INSTANTIATE_GATHER

}  // namespace lipgrad::cuda
