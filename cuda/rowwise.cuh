#pragma once

// C++17. Ops that map each row of an array (outer, n, inner) by way of one or two sums (or a
// maximum) over the row, such as softmax and the norms. A row is read once and kept, in registers
// or in shared memory, until its results are written; only rows that fit neither are read again.
//
// What is computed is told by `Op`, passed to kernels by value, for elements e of `kept` values:
//   Value                       float or double
//   kept                        the number of input arrays (1 or 2)
//   First, first_identity()     how the first statistic is combined: Sum or Max
//   steps                       1 or 2 statistics
//   columns                     whether weight() and bias() (n values or null) go into results
//   input(k)                    the arrays
//   prepare(at, e)              changes an element as it is read, at its place in the array
//   first(e)                    its part in the first statistic
//   middle(a, n, slot)          what the first statistic comes to
//   second(e, a)                its part in the second; may change e
//   last(a, b, n, slot)         what the second comes to (b is 0 when steps is 1)
//   result(e, weight, bias, a, b), output(), finish(slot, a, b)
//                               the result, where it goes, and what is left for each row
// Results may go where an input came from.

#include "reduce.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {

inline constexpr int kRowThreads = 256;
inline constexpr int kRowPacks = 4;                         // kept in registers by a thread
inline constexpr std::int64_t kRowShared = 224 << 10;       // bytes a block may keep
inline constexpr std::int64_t kRowSharedAtEase = 48 << 10;  // for several blocks a multiprocessor

// The parts of an Op that reads its arrays as they are and has no weight and bias.
template <class T, int inputs>
struct RowOp {
  using Value = T;
  using First = Sum;
  static constexpr int kept = inputs, steps = 1;
  static constexpr bool columns = false;
  __device__ static T first_identity() { return 0; }
  __device__ void prepare(std::int64_t, T (&)[inputs]) const {}
  __device__ T middle(T a, std::int64_t, std::int64_t) const { return a; }
  __device__ T second(T (&)[inputs], T) const { return 0; }
  __device__ T last(T, T b, std::int64_t, std::int64_t) const { return b; }
  __device__ const T* weight() const { return nullptr; }
  __device__ const T* bias() const { return nullptr; }
  __device__ void finish(std::int64_t, T, T) const {}
};

// What one thread has of a row: elements first + k stride + j gap for pack k and j < pack size.
struct Share {
  std::int64_t base;  // the row's place in the array, and the distance of its elements
  std::int64_t step;
  std::int64_t n;
  int first, gap, stride;
  bool vector;  // packs of neighbours, aligned
  bool alive;   // there is such a row
};

template <class Op>
__device__ __forceinline__ void read_pack(const Op& op, const Share& share, std::int64_t i,
                                          Pack<typename Op::Value> (&pack)[Op::kept]) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
#pragma unroll
  for (int a = 0; a < Op::kept; ++a) {
    const T* x = op.input(a) + share.base;
    if (share.vector && i < share.n) {
      pack[a] = load(x + i);
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) {
        const std::int64_t at = i + j * share.gap;
        pack[a].v[j] = at < share.n ? x[at * share.step] : T(0);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < size; ++j) {
    const std::int64_t at = i + j * share.gap;
    if (at >= share.n) continue;
    T e[Op::kept];
#pragma unroll
    for (int a = 0; a < Op::kept; ++a) e[a] = pack[a].v[j];
    op.prepare(share.base + at * share.step, e);
#pragma unroll
    for (int a = 0; a < Op::kept; ++a) pack[a].v[j] = e[a];
  }
}

template <class Op>
__device__ __forceinline__ void add_first(const Op& op, const Share& share, std::int64_t i,
                                          const Pack<typename Op::Value> (&pack)[Op::kept],
                                          typename Op::Value& a) {
#pragma unroll
  for (int j = 0; j < Pack<typename Op::Value>::size; ++j) {
    if (i + j * share.gap >= share.n) continue;
    typename Op::Value e[Op::kept];
#pragma unroll
    for (int k = 0; k < Op::kept; ++k) e[k] = pack[k].v[j];
    a = typename Op::First()(a, op.first(e));
  }
}

template <class Op>
__device__ __forceinline__ void add_second(const Op& op, const Share& share, std::int64_t i,
                                           Pack<typename Op::Value> (&pack)[Op::kept],
                                           typename Op::Value a, typename Op::Value& b) {
#pragma unroll
  for (int j = 0; j < Pack<typename Op::Value>::size; ++j) {
    if (i + j * share.gap >= share.n) continue;
    typename Op::Value e[Op::kept];
#pragma unroll
    for (int k = 0; k < Op::kept; ++k) e[k] = pack[k].v[j];
    b += op.second(e, a);
#pragma unroll
    for (int k = 0; k < Op::kept; ++k) pack[k].v[j] = e[k];
  }
}

template <class Op>
__device__ __forceinline__ void write_pack(const Op& op, const Share& share, std::int64_t i,
                                           const Pack<typename Op::Value> (&pack)[Op::kept],
                                           typename Op::Value a, typename Op::Value b) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
  if (i >= share.n) return;
  Pack<T> weight, bias, y;
#pragma unroll
  for (int j = 0; j < size; ++j) weight.v[j] = T(1), bias.v[j] = T(0);
  if constexpr (Op::columns) {
    if (share.vector) {
      if (op.weight()) weight = load(op.weight() + i);
      if (op.bias()) bias = load(op.bias() + i);
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) {
        const std::int64_t at = i + j * share.gap;
        if (at >= share.n) continue;
        if (op.weight()) weight.v[j] = op.weight()[at];
        if (op.bias()) bias.v[j] = op.bias()[at];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < size; ++j) {
    T e[Op::kept];
#pragma unroll
    for (int k = 0; k < Op::kept; ++k) e[k] = pack[k].v[j];
    y.v[j] = op.result(e, weight.v[j], bias.v[j], a, b);
  }
  T* to = op.output() + share.base;
  if (share.vector) return store(to + i, y);
#pragma unroll
  for (int j = 0; j < size; ++j) {
    const std::int64_t at = i + j * share.gap;
    if (at < share.n) to[at * share.step] = y.v[j];
  }
}

// Rows of n elements (inner 1), each by `group` lanes (a power of two up to 32) that hold it in
// registers.
template <class Op>
__global__ void rows_in_registers(Op op, std::int64_t rows, std::int64_t n, int group,
                                  bool vector) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % group;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kRowThreads / group) + thread / group;
  const bool packs = n % size == 0;
  const Share share{
      row * n,      1,      row < rows ? n : 0, packs ? lane * size : lane, packs ? 1 : group,
      group * size, vector, row < rows};
  Pack<T> kept[kRowPacks][Op::kept];
  T a = Op::first_identity(), b = 0;
#pragma unroll
  for (int k = 0; k < kRowPacks; ++k) {
    const std::int64_t i = share.first + k * share.stride;
    if (i < share.n) read_pack(op, share, i, kept[k]);
  }
#pragma unroll
  for (int k = 0; k < kRowPacks; ++k)
    add_first(op, share, share.first + k * share.stride, kept[k], a);
  for (int step = group / 2; step > 0; step /= 2)
    a = typename Op::First()(a, __shfl_xor_sync(kAllLanes, a, step));
  const std::int64_t slot = share.alive ? row : 0;
  a = op.middle(a, n, slot);
  if constexpr (Op::steps == 2) {
#pragma unroll
    for (int k = 0; k < kRowPacks; ++k)
      add_second(op, share, share.first + k * share.stride, kept[k], a, b);
    for (int step = group / 2; step > 0; step /= 2) b += __shfl_xor_sync(kAllLanes, b, step);
  }
  b = op.last(a, b, n, slot);
#pragma unroll
  for (int k = 0; k < kRowPacks; ++k)
    write_pack(op, share, share.first + k * share.stride, kept[k], a, b);
  if (share.alive && lane == 0) op.finish(row, a, b);
}

// In what packs of a long row are added.
template <class First, class T>
struct Wide {
  using Type = double;
};
template <class T>
struct Wide<Max, T> {
  using Type = T;
};

// A row by the threads of a block that `combine` ranges over. Each thread keeps its packs in its
// own part of `kept`, or where that is null reads them anew.
template <class Op, class Combine>
__device__ __forceinline__ void row_of_block(const Op& op, const Share& share, std::int64_t slot,
                                             Pack<typename Op::Value>* kept, bool leads,
                                             Combine combine) {
  using T = typename Op::Value;
  const int thread = static_cast<int>(threadIdx.x);
  using First = typename Op::First;
  using A = typename Wide<First, T>::Type;
  Pack<T> pack[Op::kept];
  const auto keep = [&](std::int64_t k) {
    if (!kept) return;
#pragma unroll
    for (int j = 0; j < Op::kept; ++j) kept[(k * Op::kept + j) * kRowThreads + thread] = pack[j];
  };
  const auto recall = [&](std::int64_t k, std::int64_t i) {
    if (!kept) return read_pack(op, share, i, pack);
#pragma unroll
    for (int j = 0; j < Op::kept; ++j) pack[j] = kept[(k * Op::kept + j) * kRowThreads + thread];
  };
  A first = Op::first_identity();
  std::int64_t k = 0;
  for (std::int64_t i = share.first; i < share.n; i += share.stride, ++k) {
    read_pack(op, share, i, pack);
    T part = Op::first_identity();
    add_first(op, share, i, pack, part);
    first = First()(first, static_cast<A>(part));
    keep(k);
  }
  first = combine(first, First(), static_cast<A>(Op::first_identity()));
  const T a = op.middle(static_cast<T>(first), share.n, slot);
  double second = 0;
  if constexpr (Op::steps == 2) {
    k = 0;
    for (std::int64_t i = share.first; i < share.n; i += share.stride, ++k) {
      recall(k, i);
      T part = 0;
      add_second(op, share, i, pack, a, part);
      second += static_cast<double>(part);
      keep(k);
    }
    second = combine(second, Sum(), 0.0);
  }
  const T b = op.last(a, static_cast<T>(second), share.n, slot);
  k = 0;
  for (std::int64_t i = share.first; i < share.n; i += share.stride, ++k) {
    recall(k, i);
    if (Op::steps == 2 && !kept) {
      T again = 0;
      add_second(op, share, i, pack, a, again);
    }
    write_pack(op, share, i, pack, a, b);
  }
  if (leads) op.finish(slot, a, b);
}

// Rows of n elements (inner 1), one a block.
template <class Op>
__global__ void rows_in_shared(Op op, std::int64_t n, bool vector, bool keep) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
  LIPGRAD_DYNAMIC_SHARED(Pack<T>, memory);
  const int thread = static_cast<int>(threadIdx.x);
  const bool packs = n % size == 0;
  const std::int64_t row = blockIdx.x;
  const Share share{
      row * n, 1,   n, packs ? thread * size : thread, packs ? 1 : kRowThreads, kRowThreads * size,
      vector,  true};
  row_of_block(op, share, row, keep ? memory : nullptr, thread == 0,
               [](auto value, auto with, auto identity) {
                 return block_reduce<kRowThreads>(value, with, identity);
               });
}

// Columns of n elements that lie inner > 1 apart, `width` of the outer inner columns (a power of
// two up to kRowThreads) a block: neighbouring threads have neighbouring columns.
template <class Op>
__global__ void columns_in_shared(Op op, std::int64_t slots, std::int64_t n, std::int64_t inner,
                                  int width, bool keep) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
  LIPGRAD_DYNAMIC_SHARED(Pack<T>, memory);
  LIPGRAD_SHARED(double, part, [kRowThreads]);
  const int thread = static_cast<int>(threadIdx.x), tall = kRowThreads / width;
  const int column = thread % width, row = thread / width;
  const std::int64_t slot = static_cast<std::int64_t>(blockIdx.x) * width + column;
  const std::int64_t outer = slot / inner;
  const bool alive = slot < slots;
  const Share share{outer * n * inner + (slot - outer * inner),
                    inner,
                    alive ? n : 0,
                    row,
                    tall,
                    tall * size,
                    false,
                    alive};
  row_of_block(op, share, alive ? slot : 0, keep ? memory : nullptr, alive && row == 0,
               [&](auto value, auto with, auto) {
                 part[thread] = static_cast<double>(value);
                 for (int half = tall / 2; half > 0; half /= 2) {
                   __syncthreads();
                   if (row < half) part[thread] = with(part[thread], part[thread + half * width]);
                 }
                 __syncthreads();
                 const auto result = static_cast<decltype(value)>(part[column]);
                 __syncthreads();  // before the next use of `part`
                 return result;
               });
}

// Lets a kernel use `bytes` of shared memory.
template <class Kernel>
void allow_shared(Kernel kernel, std::int64_t bytes) {
  if (bytes > (32 << 10))
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)),
          "cudaFuncSetAttribute");
}

// `aligned`: all arrays that op touches are.
template <class Op>
void map_rows(const Op& op, std::int64_t rows, std::int64_t n, bool aligned) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
  const bool vector = aligned && n % size == 0;
  if (n <= kWarp * size * kRowPacks) {
    int group = 1;
    while (group < kWarp && group * size < n) group *= 2;
    launch(rows_in_registers<Op>, blocks_for(rows, kRowThreads / group), kRowThreads, 0, op, rows,
           n, group, vector);
    return;
  }
  const std::int64_t packs = (n + kRowThreads * size - 1) / (kRowThreads * size);
  std::int64_t bytes = packs * Op::kept * kRowThreads * std::int64_t{16};
  const bool keep = bytes <= kRowShared;
  if (!keep) bytes = 0;
  allow_shared(rows_in_shared<Op>, bytes);
  launch(rows_in_shared<Op>, blocks_for(rows, 1), kRowThreads, static_cast<std::size_t>(bytes), op,
         n, vector, keep);
}

template <class Op>
void map_columns(const Op& op, std::int64_t outer, std::int64_t n, std::int64_t inner) {
  using T = typename Op::Value;
  constexpr int size = Pack<T>::size;
  // Tall enough for n, down to columns of 8, which still fill what memory hands out at once.
  int width = kRowThreads;
  const auto bytes_of = [&](int columns) {
    const std::int64_t rows = kRowThreads / columns * size;
    return (n + rows - 1) / rows * Op::kept * kRowThreads * std::int64_t{16};
  };
  while (width > 32 && kRowThreads / width * size < n) width /= 2;
  while (width > 8 && bytes_of(width) > kRowSharedAtEase) width /= 2;
  std::int64_t bytes = bytes_of(width);
  const bool keep = bytes <= kRowShared;
  if (!keep) bytes = 0, width = 32;
  allow_shared(columns_in_shared<Op>, bytes);
  launch(columns_in_shared<Op>, blocks_for(outer * inner, width), kRowThreads,
         static_cast<std::size_t>(bytes), op, outer * inner, n, inner, width, keep);
}

// Every row of (outer, n, inner).
template <class Op>
void map_along(const Op& op, std::int64_t outer, std::int64_t n, std::int64_t inner, bool aligned) {
  if (outer == 0 || inner == 0) return;
  if (inner == 1) {
    map_rows(op, outer, n, aligned);
  } else {
    map_columns(op, outer, n, inner);
  }
}

}  // namespace lipgrad::cuda
