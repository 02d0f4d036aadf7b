#pragma once

// C++17. Reductions of the middle dimension of arrays (outer, n, inner), in an order that depends
// on the sizes alone.
//
// What is reduced is told by `Terms`, passed to kernels by value:
//   Value, State            element type; what a part of a row comes to (at most 16 bytes)
//   data()                  the array
//   none()                  the State of no elements
//   take(state, v, count, i, step, slot)
//                           takes v[0], ..., v[count - 1], the elements i, i + step, ... of the row
//                           of result `slot`, into state
//   merge(a, b)             (static, commutative) the State of two parts
//   finish(state, slot)     writes a result
// and by shuffle_xor(state, step) for its State.

#include "reduce.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {

inline constexpr int kReduceThreads = 256;
// Blocks wanted to fill any device; more where there are more results.
inline constexpr std::int64_t kReduceBlocks = 1024;

__device__ __forceinline__ double shuffle_xor(double value, int step) {
  return __shfl_xor_sync(kAllLanes, value, step);
}

// The elements begin, ..., end - 1 of a row, dealt to `threads` threads in packs. `vector`: the row
// is aligned, and so is begin.
template <class Terms>
__device__ __forceinline__ typename Terms::State reduce_part(const Terms& terms, std::int64_t row,
                                                             std::int64_t n, std::int64_t begin,
                                                             std::int64_t end, int thread,
                                                             int threads, bool vector) {
  using T = typename Terms::Value;
  constexpr int size = Pack<T>::size, batch = 4;
  const T* x = terms.data() + row * n;
  const std::int64_t stride = threads * size;
  typename Terms::State state = terms.none();
  std::int64_t i = begin + thread * size;
  for (; i + (batch - 1) * stride + size <= end; i += batch * stride) {
    Pack<T> pack[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k) pack[k] = load(x + i + k * stride, vector, size, T{});
#pragma unroll
    for (int k = 0; k < batch; ++k) terms.take(state, pack[k].v, size, i + k * stride, 1, row);
  }
  for (; i < end; i += stride) {
    const Pack<T> pack = load(x + i, vector, end - i, T{});
    terms.take(state, pack.v, end - i < size ? static_cast<int>(end - i) : size, i, 1, row);
  }
  return state;
}

// Rows of n elements, each by `group` lanes (a power of two up to 32).
template <class Terms>
__global__ void row_group_kernel(Terms terms, std::int64_t rows, std::int64_t n, int group,
                                 bool vector) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % group;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kReduceThreads / group) + thread / group;
  typename Terms::State state = terms.none();
  if (row < rows) state = reduce_part(terms, row, n, 0, n, lane, group, vector);
  for (int step = group / 2; step > 0; step /= 2)
    state = Terms::merge(state, shuffle_xor(state, step));
  if (row < rows && lane == 0) terms.finish(state, row);
}

// Rows of n elements, each by `chunks` blocks with `length` elements a piece; with more than one
// the States go to partial(rows, chunks).
template <class Terms>
__global__ void row_block_kernel(Terms terms, std::int64_t n, std::int64_t chunks,
                                 std::int64_t length, bool vector, typename Terms::State* partial) {
  using State = typename Terms::State;
  constexpr int warps = kReduceThreads / kWarp;
  LIPGRAD_SHARED(State, part, [warps]);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x / chunks, begin = blockIdx.x % chunks * length;
  State state = reduce_part(terms, row, n, begin, begin + length < n ? begin + length : n, thread,
                            kReduceThreads, vector);
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    state = Terms::merge(state, shuffle_xor(state, step));
  if (thread % kWarp == 0) part[thread / kWarp] = state;
  __syncthreads();
  if (thread != 0) return;
  for (int k = 1; k < warps; ++k) state = Terms::merge(state, part[k]);
  if (chunks > 1) {
    partial[blockIdx.x] = state;
  } else {
    terms.finish(state, row);
  }
}

// How (outer, n, inner) is cut among blocks when inner > 1: `width` columns and `length` elements
// of each a block.
struct ColumnCut {
  int width;
  std::int64_t tiles, chunks, length;

  ColumnCut(std::int64_t outer, std::int64_t n, std::int64_t inner) {
    width = inner <= 48 ? static_cast<int>(inner) : 32;
    tiles = (inner + width - 1) / width;
    // At least 32 elements a thread, so that partial results are few beside what they stand for.
    const std::int64_t least = 32 * (kReduceThreads / width), others = outer * tiles;
    chunks = others < kReduceBlocks ? kReduceBlocks / others : 1;
    if (chunks > (n + least - 1) / least) chunks = (n + least - 1) / least;
    if (chunks < 1) chunks = 1;
    length = (n + chunks - 1) / chunks;
    if (length > 0) chunks = (n + length - 1) / length;
  }
};

// Columns of (outer, n, inner), each by threads of one column of the block; with chunks > 1 the
// States go to partial(outer, chunks, inner).
template <class Terms>
__global__ void column_block_kernel(Terms terms, std::int64_t n, std::int64_t inner, ColumnCut cut,
                                    typename Terms::State* partial) {
  using T = typename Terms::Value;
  using State = typename Terms::State;
  constexpr int batch = 8;
  LIPGRAD_SHARED(State, part, [kReduceThreads]);
  const int thread = static_cast<int>(threadIdx.x), width = cut.width;
  int tall = kReduceThreads / width;
  const int row = thread / width;
  const std::int64_t tile = blockIdx.x % cut.tiles, rest = blockIdx.x / cut.tiles;
  const std::int64_t chunk = rest % cut.chunks, outer = rest / cut.chunks;
  const std::int64_t column = tile * width + thread % width, slot = outer * inner + column;
  State state = terms.none();
  if (row < tall && column < inner) {
    const std::int64_t begin = chunk * cut.length,
                       end = begin + cut.length < n ? begin + cut.length : n;
    const T* x = terms.data() + outer * n * inner + column;
    std::int64_t i = begin + row;
    for (; i + (batch - 1) * tall < end; i += batch * tall) {
      T v[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k) v[k] = x[(i + k * tall) * inner];
      terms.take(state, v, batch, i, tall, slot);
    }
    for (; i < end; i += tall) {
      const T v[1] = {x[i * inner]};
      terms.take(state, v, 1, i, tall, slot);
    }
  }
  part[thread] = state;
  while (tall > 1) {
    const int half = (tall + 1) / 2;
    __syncthreads();
    if (row + half < tall) part[thread] = Terms::merge(part[thread], part[thread + half * width]);
    tall = half;
  }
  if (row > 0 || column >= inner) return;
  if (cut.chunks > 1) {
    partial[(outer * cut.chunks + chunk) * inner + column] = part[thread];
  } else {
    terms.finish(part[thread], slot);
  }
}

// The same with one thread for each of `slots` = outer inner results, for many or short columns.
template <class Terms>
__global__ void column_thread_kernel(Terms terms, std::int64_t slots, std::int64_t n,
                                     std::int64_t inner) {
  using T = typename Terms::Value;
  constexpr int batch = 8;
  const std::int64_t slot = thread_index();
  if (slot >= slots) return;
  const std::int64_t outer = slot / inner;
  const T* x = terms.data();  // null where n is 0
  const std::int64_t base = outer * n * inner + (slot - outer * inner);
  typename Terms::State state = terms.none();
  std::int64_t i = 0;
  for (; i + batch <= n; i += batch) {
    T v[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k) v[k] = x[base + (i + k) * inner];
    terms.take(state, v, batch, i, 1, slot);
  }
  for (; i < n; ++i) {
    const T v[1] = {x[base + i * inner]};
    terms.take(state, v, 1, i, 1, slot);
  }
  terms.finish(state, slot);
}

// The Terms of partial results.
template <class Terms>
struct Merged {
  using Value = typename Terms::State;
  using State = typename Terms::State;
  Terms terms;
  const State* partial;

  __device__ const State* data() const { return partial; }
  __device__ State none() const { return terms.none(); }
  template <int size>
  __device__ __forceinline__ void take(State& state, const State (&v)[size], int count,
                                       std::int64_t, std::int64_t, std::int64_t) const {
#pragma unroll
    for (int k = 0; k < size; ++k)
      if (k < count) state = Terms::merge(state, v[k]);
  }
  __device__ static State merge(const State& a, const State& b) { return Terms::merge(a, b); }
  __device__ void finish(const State& state, std::int64_t slot) const { terms.finish(state, slot); }
};

template <class Terms>
void reduce_rows(const Terms& terms, std::int64_t rows, std::int64_t n, const void* data) {
  using T = typename Terms::Value;
  using State = typename Terms::State;
  constexpr int size = Pack<T>::size;
  const bool vector = aligned(data) && (n % size == 0 || rows == 1);
  if (n <= 2048) {
    int group = 1;
    while (group < kWarp && group * size < n) group *= 2;
    launch(row_group_kernel<Terms>, blocks_for(rows, kReduceThreads / group), kReduceThreads, 0,
           terms, rows, n, group, vector);
    return;
  }
  constexpr std::int64_t least = 32 * kReduceThreads;
  std::int64_t chunks = rows < kReduceBlocks ? kReduceBlocks / rows : 1;
  if (chunks > n / least) chunks = n / least;
  if (chunks < 1) chunks = 1;
  // Whole packs, so that every piece is aligned when the row is.
  const std::int64_t length = ((n + chunks - 1) / chunks + size - 1) / size * size;
  chunks = (n + length - 1) / length;
  const Scratch<State> partial(chunks > 1 ? rows * chunks : 0);
  launch(row_block_kernel<Terms>, blocks_for(rows * chunks, 1), kReduceThreads, 0, terms, n, chunks,
         length, vector, partial.get());
  if (chunks > 1)
    launch(row_block_kernel<Merged<Terms>>, blocks_for(rows, 1), kReduceThreads, 0,
           Merged<Terms>{terms, partial.get()}, chunks, std::int64_t{1}, chunks, false,
           static_cast<State*>(nullptr));
}

template <class Terms>
void reduce_columns(const Terms& terms, std::int64_t outer, std::int64_t n, std::int64_t inner) {
  using State = typename Terms::State;
  const std::int64_t slots = outer * inner;
  if (n <= 16 || slots >= (1 << 16)) {
    launch(column_thread_kernel<Terms>, blocks_for(slots, kReduceThreads), kReduceThreads, 0, terms,
           slots, n, inner);
    return;
  }
  const ColumnCut cut(outer, n, inner);
  const Scratch<State> partial(cut.chunks > 1 ? outer * cut.chunks * inner : 0);
  launch(column_block_kernel<Terms>, blocks_for(outer * cut.tiles * cut.chunks, 1), kReduceThreads,
         0, terms, n, inner, cut, partial.get());
  if (cut.chunks == 1) return;
  ColumnCut all(outer, cut.chunks, inner);
  all.chunks = 1;
  all.length = cut.chunks;
  launch(column_block_kernel<Merged<Terms>>, blocks_for(outer * all.tiles, 1), kReduceThreads, 0,
         Merged<Terms>{terms, partial.get()}, cut.chunks, inner, all, static_cast<State*>(nullptr));
}

// outer, inner > 0; n may be 0. `data` is what terms.data() gives.
template <class Terms>
void reduce(const Terms& terms, std::int64_t outer, std::int64_t n, std::int64_t inner,
            const void* data) {
  if (outer == 0 || inner == 0) return;
  if (inner == 1) {
    reduce_rows(terms, outer, n, data);
  } else {
    reduce_columns(terms, outer, n, inner);
  }
}

}  // namespace lipgrad::cuda
