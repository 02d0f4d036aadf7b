#pragma once

// C++17. Values of edges, a few columns each: reduced over the rows of a CSR structure, or computed
// one by one. A warp works on up to 32 columns of a row (or of a part of a hub, rows.cuh); its
// lanes are (edge, column) pairs.
//
// What is reduced is told by `Terms`, passed to kernels by value:
//   Value, State                     of one edge and column; of some edges of a column
//   batch                            how many Values are loaded before the first is taken
//   none()                           the State of no edges
//   load(row, begin, e, column)      of a row that begins with edge `begin`
//   take(state, value)               (static)
//   merge(a, b)                      (static, commutative) the State of two parts
//   finish(row, count, column, state)  writes a result of `count` edges
// and by shuffle_xor(state, step) for its State.

#include "gat.cuh"

namespace lipgrad::cuda {

__device__ __forceinline__ double shuffle_lane(double value, int step) {
  return __shfl_xor_sync(kAllLanes, value, step);
}

// The columns that a warp works on.
struct ColumnGroups {
  std::int64_t columns, groups;

  explicit ColumnGroups(std::int64_t n) : columns(n), groups((n + kWarp - 1) / kWarp) {}
  __device__ std::int64_t first(std::int64_t warp) const { return warp % groups * kWarp; }
  __device__ HeadLanes lanes(std::int64_t first) const {
    return HeadLanes(columns - first < kWarp ? static_cast<int>(columns - first) : kWarp);
  }
};

// The State of a work's edges, in all lanes of a column.
template <class Terms>
__device__ __forceinline__ typename Terms::State reduce_edges(const Terms& terms, const Csr& csr,
                                                              const RowWork& work,
                                                              const HeadLanes& lanes,
                                                              std::int64_t column) {
  constexpr int batch = Terms::batch;
  const std::int64_t begin = work.slot < 0 ? work.from : csr.offsets[work.row];
  typename Terms::State state = terms.none();
  std::int64_t e = work.from + lanes.edge;
  for (; e + (batch - 1) * lanes.edges < work.to; e += batch * lanes.edges) {
    typename Terms::Value value[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k)
      value[k] = terms.load(work.row, begin, e + k * lanes.edges, column);
#pragma unroll
    for (int k = 0; k < batch; ++k) Terms::take(state, value[k]);
  }
  for (; e < work.to; e += lanes.edges) Terms::take(state, terms.load(work.row, begin, e, column));
  for (int step = lanes.stride; step < kWarp; step *= 2)
    state = Terms::merge(state, shuffle_lane(state, step));
  return state;
}

// Results of rows; of hubs' parts the States, slots(2 pieces, columns).
template <class Terms>
__global__ void __launch_bounds__(kGatThreads)
    reduce_rows_kernel(Csr csr, ColumnGroups groups, Terms terms, typename Terms::State* slots,
                       std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const RowWork work = row_work(csr, warp / groups.groups);
  if (work.row < 0) return;
  const std::int64_t first = groups.first(warp);
  const HeadLanes lanes = groups.lanes(first);
  const std::int64_t column = first + lanes.head;
  const typename Terms::State state = reduce_edges(terms, csr, work, lanes, column);
  if (!lanes.used || lanes.edge != 0) return;
  if (work.slot < 0) {
    terms.finish(work.row, work.to - work.from, column, state);
  } else {
    slots[work.slot * groups.columns + column] = state;
  }
}

// The State of a hub's `column` + lane from those of its parts, in the first warp. All threads of a
// block of kRowWarps warps call it.
template <class Terms>
__device__ typename Terms::State reduce_hub(const Terms& terms, const Hub& hub,
                                            const typename Terms::State* slots, std::int64_t column,
                                            std::int64_t columns) {
  using State = typename Terms::State;
  LIPGRAD_SHARED(State, part, [kRowWarps][kWarp]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t share = (hub.parts + kRowWarps - 1) / kRowWarps, begin = warp * share;
  const std::int64_t end = begin + share < hub.parts ? begin + share : hub.parts;
  State state = terms.none();
  if (column + lane < columns)
    for (std::int64_t p = begin; p < end; ++p)
      state = Terms::merge(state, slots[hub.slot(p) * columns + column + lane]);
  __syncthreads();  // an earlier call may still read `part`
  part[warp][lane] = state;
  __syncthreads();
  state = part[0][lane];
#pragma unroll
  for (int w = 1; w < kRowWarps; ++w) state = Terms::merge(state, part[w][lane]);
  return state;
}

template <class Terms>
__global__ void __launch_bounds__(kGatThreads)
    reduce_hubs_kernel(Csr csr, std::int64_t columns, Terms terms,
                       const typename Terms::State* slots) {
  const Hub hub = hub_of(csr, blockIdx.x);
  if (hub.row < 0) return;
  const std::int64_t count = csr.offsets[hub.row + 1] - csr.offsets[hub.row];
  for (std::int64_t c = 0; c < columns; c += kWarp) {
    const typename Terms::State state = reduce_hub(terms, hub, slots, c, columns);
    if (threadIdx.x < kWarp && c + threadIdx.x < columns)
      terms.finish(hub.row, count, c + threadIdx.x, state);
  }
}

template <class Terms>
void reduce_rows(const Csr& csr, std::int64_t columns, const Terms& terms) {
  if (csr.rows == 0 || columns == 0) return;
  const ColumnGroups groups(columns);
  const std::int64_t pieces = csr.pieces(), warps = csr.works() * groups.groups;
  const Scratch<typename Terms::State> slots(2 * pieces * columns);
  launch(reduce_rows_kernel<Terms>, blocks_for(warps, kRowWarps), kGatThreads, 0, csr, groups,
         terms, slots.get(), warps);
  launch(reduce_hubs_kernel<Terms>, blocks_for(pieces, 1), kGatThreads, 0, csr, columns, terms,
         slots.get());
}

// Calls each(row, count, e, column) for all edges and columns; `count` is the row's number of
// edges.
template <class Each>
__global__ void __launch_bounds__(kGatThreads)
    each_edge_kernel(Csr csr, ColumnGroups groups, Each each, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const RowWork work = row_work(csr, warp / groups.groups);
  if (work.row < 0) return;
  const std::int64_t first = groups.first(warp);
  const HeadLanes lanes = groups.lanes(first);
  if (!lanes.used) return;
  const std::int64_t count =
      work.slot < 0 ? work.to - work.from : csr.offsets[work.row + 1] - csr.offsets[work.row];
#pragma unroll 4
  for (std::int64_t e = work.from + lanes.edge; e < work.to; e += lanes.edges)
    each(work.row, count, e, first + lanes.head);
}

template <class Each>
void each_edge(const Csr& csr, std::int64_t columns, const Each& each) {
  if (csr.edges == 0 || columns == 0) return;
  const ColumnGroups groups(columns);
  const std::int64_t warps = csr.works() * groups.groups;
  launch(each_edge_kernel<Each>, blocks_for(warps, kRowWarps), kGatThreads, 0, csr, groups, each,
         warps);
}

// The largest value and the lowest of the indices that have it; a NaN is the largest.
template <class T, class Index>
struct Largest {
  T top;
  Index best;  // -1: of nothing
};
template <class T, class Index>
__device__ __forceinline__ Largest<T, Index> larger(const Largest<T, Index>& a,
                                                    const Largest<T, Index>& b) {
  if (a.best < 0 || b.best < 0) return a.best < 0 ? b : a;
  const bool a_nan = a.top != a.top, b_nan = b.top != b.top;
  const bool same = (a_nan && b_nan) || a.top == b.top;
  if (same) return a.best < b.best ? a : b;
  return a_nan || (!b_nan && a.top > b.top) ? a : b;
}
template <class T, class Index>
__device__ __forceinline__ Largest<T, Index> shuffle_lane(const Largest<T, Index>& value,
                                                          int step) {
  return {__shfl_xor_sync(kAllLanes, value.top, step),
          __shfl_xor_sync(kAllLanes, value.best, step)};
}

// Of x(rows, columns): y and argmax (may be null) by rows of the structure. Edge e is row other[e]
// of x, or row e where that is null.
template <class T, class Index>
struct MaximumTerms {
  using Value = Largest<T, Index>;
  using State = Value;
  static constexpr int batch = 4;
  std::int64_t columns;
  const std::int32_t* other;
  const T* x;
  T* y;
  Index* argmax;

  __device__ State none() const { return {T(0), Index(-1)}; }
  __device__ __forceinline__ Value load(std::int64_t, std::int64_t, std::int64_t e,
                                        std::int64_t column) const {
    const std::int64_t row = other != nullptr ? other[e] : e;
    return {x[row * columns + column], static_cast<Index>(row)};
  }
  __device__ static __forceinline__ void take(State& state, const Value& value) {
    state = larger(state, value);
  }
  __device__ static __forceinline__ State merge(const State& a, const State& b) {
    return larger(a, b);
  }
  __device__ __forceinline__ void finish(std::int64_t row, std::int64_t, std::int64_t column,
                                         const State& state) const {
    y[row * columns + column] = state.top;
    if (argmax != nullptr) argmax[row * columns + column] = state.best;
  }
};

// The largest of some values, and the sum of exp(value - top).
template <class T>
struct Exponentials {
  T top;
  double sum;

  // exp(value - top) over the sum; 0 where all values are -inf.
  __device__ __forceinline__ T share(T value) const {
    if (top == -infinity()) return T(0);
    return static_cast<T>(double(scalar::exp(value - top)) / sum);
  }
  __device__ static __forceinline__ T infinity() {
    return static_cast<T>(static_cast<double>(INFINITY));
  }
};
template <class T>
__device__ __forceinline__ Exponentials<T> shuffle_lane(const Exponentials<T>& value, int step) {
  return {__shfl_xor_sync(kAllLanes, value.top, step), __shfl_xor_sync(kAllLanes, value.sum, step)};
}

// Of x(edges, columns), as Terms without finish().
template <class T>
struct ExponentialTerms {
  using Value = T;
  using State = Exponentials<T>;
  static constexpr int batch = 4;
  std::int64_t columns;
  const T* x;

  __device__ State none() const { return {-State::infinity(), 0}; }
  __device__ __forceinline__ T load(std::int64_t, std::int64_t, std::int64_t e,
                                    std::int64_t column) const {
    return x[e * columns + column];
  }
  __device__ static __forceinline__ void take(State& state, T value) {
    if (value == state.top) {
      state.sum += 1;  // infinite ones too
    } else if (value > state.top) {
      state.sum = state.sum * double(scalar::exp(state.top - value)) + 1;
      state.top = value;
    } else {
      state.sum += double(scalar::exp(value - state.top));
    }
  }
  __device__ static __forceinline__ State merge(const State& a, const State& b) {
    if (a.top == b.top) return {a.top, a.sum + b.sum};
    const bool first = a.top > b.top;
    const T top = first ? a.top : b.top, low = first ? b.top : a.top;
    const double sum = first ? a.sum : b.sum, less = first ? b.sum : a.sum;
    return {top, sum + less * double(scalar::exp(low - top))};
  }
};

// Sums, in double: what Terms of them share.
template <class T>
struct SumTerms {
  using Value = T;
  using State = double;
  static constexpr int batch = 4;

  __device__ State none() const { return 0; }
  __device__ static __forceinline__ void take(State& state, T value) {
    state += static_cast<double>(value);
  }
  __device__ static __forceinline__ State merge(State a, State b) { return a + b; }
};

}  // namespace lipgrad::cuda
