#include <lipgrad/graph/kernels/edge_softmax.h>

#include "edge_rows.cuh"

namespace lipgrad::cuda {
namespace {

// Terms here have write(state, e, column) in place of finish(): what an edge becomes, given the
// State of its row.

// Rows of few edges are read again from the cache; of hubs' parts the States go to slots.
template <class Terms>
__global__ void __launch_bounds__(kGatThreads)
    write_rows_kernel(Csr csr, ColumnGroups groups, Terms terms, typename Terms::State* slots,
                      std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const RowWork work = row_work(csr, warp / groups.groups);
  if (work.row < 0) return;
  const std::int64_t first = groups.first(warp);
  const HeadLanes lanes = groups.lanes(first);
  const std::int64_t column = first + lanes.head;
  const typename Terms::State state = reduce_edges(terms, csr, work, lanes, column);
  if (!lanes.used) return;
  if (work.slot >= 0) {
    if (lanes.edge == 0) slots[work.slot * groups.columns + column] = state;
    return;
  }
#pragma unroll 4
  for (std::int64_t e = work.from + lanes.edge; e < work.to; e += lanes.edges)
    terms.write(state, e, column);
}

// The State of a hub goes to its first slot.
template <class Terms>
__global__ void __launch_bounds__(kGatThreads)
    hub_states_kernel(Csr csr, std::int64_t columns, Terms terms, typename Terms::State* slots) {
  const Hub hub = hub_of(csr, blockIdx.x);
  if (hub.row < 0) return;
  for (std::int64_t c = 0; c < columns; c += kWarp) {
    const typename Terms::State state = reduce_hub(terms, hub, slots, c, columns);
    if (threadIdx.x < kWarp && c + threadIdx.x < columns)
      slots[hub.first * columns + c + threadIdx.x] = state;
  }
}

template <class Terms>
__global__ void __launch_bounds__(kGatThreads)
    write_hubs_kernel(Csr csr, ColumnGroups groups, Terms terms, const typename Terms::State* slots,
                      std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const RowWork work = row_work(csr, csr.rows + warp / groups.groups);
  if (work.row < 0) return;
  const std::int64_t first = groups.first(warp);
  const HeadLanes lanes = groups.lanes(first);
  if (!lanes.used) return;
  const std::int64_t column = first + lanes.head, begin = csr.offsets[work.row];
  const std::int64_t slot = begin / kPieceEdges * 2 + (begin % kPieceEdges > 0 ? 1 : 0);
  const typename Terms::State state = slots[slot * groups.columns + column];
#pragma unroll 4
  for (std::int64_t e = work.from + lanes.edge; e < work.to; e += lanes.edges)
    terms.write(state, e, column);
}

template <class Terms>
void write_rows(const Csr& csr, std::int64_t columns, const Terms& terms) {
  if (csr.edges == 0 || columns == 0) return;
  const ColumnGroups groups(columns);
  const std::int64_t pieces = csr.pieces(), warps = csr.works() * groups.groups,
                     hub_warps = 2 * pieces * groups.groups;
  const Scratch<typename Terms::State> slots(2 * pieces * columns);
  launch(write_rows_kernel<Terms>, blocks_for(warps, kRowWarps), kGatThreads, 0, csr, groups, terms,
         slots.get(), warps);
  launch(hub_states_kernel<Terms>, blocks_for(pieces, 1), kGatThreads, 0, csr, columns, terms,
         slots.get());
  launch(write_hubs_kernel<Terms>, blocks_for(hub_warps, kRowWarps), kGatThreads, 0, csr, groups,
         terms, slots.get(), hub_warps);
}

template <class T>
struct SoftmaxTerms : ExponentialTerms<T> {
  T* y;

  SoftmaxTerms(std::int64_t heads, const T* from, T* to)
      : ExponentialTerms<T>{heads, from}, y(to) {}
  __device__ __forceinline__ void write(const Exponentials<T>& state, std::int64_t e,
                                        std::int64_t column) const {
    const std::int64_t at = e * this->columns + column;
    y[at] = state.share(this->x[at]);
  }
};

template <class T>
struct GradientTerms : SumTerms<T> {
  std::int64_t columns;
  const T *y, *gy;
  T* gx;

  __device__ __forceinline__ T load(std::int64_t, std::int64_t, std::int64_t e,
                                    std::int64_t column) const {
    return y[e * columns + column] * gy[e * columns + column];
  }
  __device__ __forceinline__ void write(double sum, std::int64_t e, std::int64_t column) const {
    const std::int64_t at = e * columns + column;
    gx[at] = y[at] * (gy[at] - static_cast<T>(sum));
  }
};

}  // namespace

template <class T>
void edge_softmax(std::int64_t rows, std::int64_t edges, std::int64_t heads,
                  const std::int64_t* offsets, const T* x, T* y) {
  write_rows(Csr{rows, edges, offsets}, heads, SoftmaxTerms<T>(heads, x, y));
}

template <class T>
void edge_softmax_backward(std::int64_t rows, std::int64_t edges, std::int64_t heads,
                           const std::int64_t* offsets, const T* y, const T* gy, T* gx) {
  write_rows(Csr{rows, edges, offsets}, heads, GradientTerms<T>{{}, heads, y, gy, gx});
}

#define INSTANTIATE(T)                                                                      \
  template void edge_softmax(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                             const T*, T*);                                                 \
  template void edge_softmax_backward(std::int64_t, std::int64_t, std::int64_t,             \
                                      const std::int64_t*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
