#include <lipgrad/ops/kernels/spmm.h>

#include "rows.cuh"
#include "spmm_paths.h"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = kRowWarps * kWarp;

// How the vectors of a row are shared out: `lanes` of a warp read one row at a time, and a row of
// more than 32 vectors is `parts` warps' work.
struct RowLanes {
  std::int64_t vectors, parts;
  int lanes;

  RowLanes(std::int64_t features, int width)
      : vectors(features / width),
        parts((vectors + kWarp - 1) / kWarp),
        lanes(vectors < kWarp ? power_of_two(static_cast<int>(vectors)) : kWarp) {}
};

template <class T>
struct Entries {
  const std::int32_t* columns;
  const std::int64_t* order;
  const T* values;
  std::int64_t heads;

  __device__ __forceinline__ T value(std::int64_t e, std::int64_t head) const {
    if (values == nullptr) return T(1);
    return values[(order == nullptr ? e : order[e]) * heads + head];
  }
};

// sum += the terms of entries [from, to), in order.
template <int V, class T>
__device__ __forceinline__ void add_terms(const Entries<T>& a, std::int64_t head, std::int64_t from,
                                          std::int64_t to, const T* x, std::int64_t ldx,
                                          T (&sum)[V]) {
  constexpr int ahead = 4;
  std::int64_t e = from;
  for (; e + ahead <= to; e += ahead) {
    T value[ahead], row[ahead][V];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      value[k] = a.value(e + k, head);
      read(x + a.columns[e + k] * ldx, row[k]);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k)
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += value[k] * row[k][i];
  }
  for (; e < to; ++e) {
    const T value = a.value(e, head);
    T row[V];
    read(x + a.columns[e] * ldx, row);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += value * row[i];
  }
}

// y(rows, width) = A x(cols, width); slots (2 pieces, width). `vectors` of them make up a head.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    spmm_kernel(Csr csr, RowLanes layout, Entries<T> a, const T* x, std::int64_t ldx, T* y,
                std::int64_t ldy, T* slots, std::int64_t row_warps, std::int64_t vectors) {
  const std::int64_t warp = thread_index() / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, groups = kWarp / layout.lanes,
            group = lane / layout.lanes;
  const std::int64_t vector = warp % layout.parts * kWarp + lane % layout.lanes;
  const std::int64_t head = a.heads == 1 ? 0 : vector / vectors;
  T sum[V] = {};
  if (warp < row_warps) {  // `groups` rows
    const std::int64_t row = warp / layout.parts * groups + group;
    if (row >= csr.rows || vector >= layout.vectors) return;
    const std::int64_t from = csr.offsets[row], to = csr.offsets[row + 1];
    if (to - from > kPieceEdges) return;
    add_terms(a, head, from, to, x + vector * V, ldx, sum);
    write(y + row * ldy + vector * V, sum);
    return;
  }
  const std::int64_t slot = (warp - row_warps) / layout.parts;
  if (slot >= csr.works() - csr.rows) return;
  const RowWork work = row_work(csr, csr.rows + slot);
  if (work.row < 0) return;
  // Each group adds a stretch of the entries; then the groups' sums are added in order.
  const int share = (work.count() + groups - 1) / groups;
  const std::int64_t from = work.from + group * share;
  const std::int64_t to = from + share < work.to ? from + share : work.to;
  if (vector < layout.vectors) add_terms(a, head, from, to, x + vector * V, ldx, sum);
  T total[V] = {};
  for (int g = 0; g < groups; ++g)
#pragma unroll
    for (int i = 0; i < V; ++i)
      total[i] += __shfl_sync(kAllLanes, sum[i], g * layout.lanes + lane % layout.lanes);
  if (group == 0 && vector < layout.vectors)
    write(slots + (slot * layout.vectors + vector) * V, total);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    spmm_hubs_kernel(Csr csr, std::int64_t features, const T* slots, T* y, std::int64_t ldy) {
  const Hub hub = hub_of(csr, blockIdx.x);
  if (hub.row < 0) return;
  for (std::int64_t c = 0; c < features; c += kWarp) {
    const double sum = hub_sum(hub, slots, features, c, features);
    if (threadIdx.x < kWarp && c + threadIdx.x < features)
      y[hub.row * ldy + c + threadIdx.x] = static_cast<T>(sum);
  }
}

// gvalues[e, head] = <gy[row of e, head, :], x[columns[e], head, :]>, one pair (e, head) after the
// other. The layout is that of a head.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    spmm_values_kernel(Csr csr, RowLanes layout, int heads, const std::int32_t* columns,
                       const T* gy, std::int64_t ldgy, const T* x, std::int64_t ldx, T* gvalues) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= csr.works()) return;
  const RowWork work = row_work(csr, warp);
  if (work.row < 0) return;
  constexpr int ahead = 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, groups = kWarp / layout.lanes,
            group = lane / layout.lanes, at = lane % layout.lanes;
  const int pairs = work.count() * heads;  // of at most kPieceEdges entries
  for (int base = 0; base < pairs; base += ahead * groups) {
    const T *own[ahead], *row[ahead];
    T sum[ahead] = {};
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const int pair = base + k * groups + group, e = pair < pairs ? pair / heads : 0;
      const std::int64_t head = pair < pairs ? pair - e * heads : 0;
      own[k] = gy + work.row * ldgy + head * layout.vectors * V;
      row[k] = x + columns[work.from + e] * ldx + head * layout.vectors * V;
    }
    for (std::int64_t v = at; v < layout.vectors; v += layout.lanes) {
      T left[ahead][V], right[ahead][V];
#pragma unroll
      for (int k = 0; k < ahead; ++k) {
        read(own[k] + v * V, left[k]);
        read(row[k] + v * V, right[k]);
      }
#pragma unroll
      for (int k = 0; k < ahead; ++k)
#pragma unroll
        for (int i = 0; i < V; ++i) sum[k] += left[k][i] * right[k][i];
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      for (int step = layout.lanes / 2; step > 0; step /= 2)
        sum[k] += __shfl_xor_sync(kAllLanes, sum[k], step);
      const int pair = base + k * groups + group;
      if (at == 0 && pair < pairs) gvalues[work.from * heads + pair] = sum[k];
    }
  }
}

template <class T, int V>
void spmm_by(const Csr& csr, std::int64_t features, const Entries<T>& a, const T* x,
             std::int64_t ldx, T* y, std::int64_t ldy) {
  const std::int64_t width = a.heads * features;
  const RowLanes layout(width, V);
  const std::int64_t groups = kWarp / layout.lanes;
  const std::int64_t row_warps = (csr.rows + groups - 1) / groups * layout.parts;
  const std::int64_t pieces = csr.pieces();
  const Scratch<T> slots(2 * pieces * width);
  launch(spmm_kernel<T, V>, blocks_for(row_warps + 2 * pieces * layout.parts, kRowWarps), kThreads,
         0, csr, layout, a, x, ldx, y, ldy, slots.get(), row_warps, features / V);
  launch(spmm_hubs_kernel<T>, blocks_for(pieces, 1), kThreads, 0, csr, width, slots.get(), y, ldy);
}

__global__ void narrow_kernel(std::int64_t n, const std::int64_t* from, std::int32_t* to) {
  const std::int64_t i = thread_index();
  if (i < n) to[i] = static_cast<std::int32_t>(from[i]);
}

}  // namespace

void narrow(std::int64_t n, const std::int64_t* from, std::int32_t* to) {
  launch(narrow_kernel, blocks_for(n, 256), 256, 0, n, from, to);
}

template <class T>
void spmm_rows(std::int64_t rows, std::int64_t nnz, std::int64_t heads, std::int64_t features,
               const std::int64_t* offsets, const std::int32_t* columns, const std::int64_t* order,
               const T* values, const T* x, std::int64_t ldx, T* y, std::int64_t ldy) {
  if (rows == 0 || heads == 0 || features == 0) return;
  const Csr csr{rows, nnz, offsets};
  const Entries<T> a{columns, order, values, heads};
  if constexpr (sizeof(T) == 4) {
    if (fits_float4(features | ldx | ldy, x, y))
      return spmm_by<T, 4>(csr, features, a, x, ldx, y, ldy);
  }
  spmm_by<T, 1>(csr, features, a, x, ldx, y, ldy);
}

template <class T>
void spmm(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t heads,
          std::int64_t features, const std::int64_t* offsets, const std::int32_t* columns,
          const std::int64_t* order, const T* values, const T* x, std::int64_t ldx, T* y,
          std::int64_t ldy) {
  if (heads == 1 && fits_cusparse(rows, cols, nnz, features, order, values, ldx, ldy) &&
      spmm_cusparse(rows, cols, nnz, features, offsets, columns, values, x, ldx, y, ldy))
    return;
  spmm_rows(rows, nnz, heads, features, offsets, columns, order, values, x, ldx, y, ldy);
}

template <class T>
void spmm_backward_values(std::int64_t rows, std::int64_t nnz, std::int64_t heads,
                          std::int64_t features, const std::int64_t* offsets,
                          const std::int32_t* columns, const T* gy, std::int64_t ldgy, const T* x,
                          std::int64_t ldx, T* gvalues) {
  if (nnz == 0 || heads == 0) return;
  const Csr csr{rows, nnz, offsets};
  const unsigned blocks = blocks_for(csr.works(), kRowWarps);
  const int h = static_cast<int>(heads);
  if constexpr (sizeof(T) == 4) {
    if (fits_float4(features | ldx | ldgy, x, gy) && features > 0) {
      launch(spmm_values_kernel<T, 4>, blocks, kThreads, 0, csr, RowLanes(features, 4), h, columns,
             gy, ldgy, x, ldx, gvalues);
      return;
    }
  }
  launch(spmm_values_kernel<T, 1>, blocks, kThreads, 0, csr, RowLanes(features, 1), h, columns, gy,
         ldgy, x, ldx, gvalues);
}

#define INSTANTIATE(T)                                                                             \
  template void spmm_rows(std::int64_t, std::int64_t, std::int64_t, std::int64_t,                  \
                          const std::int64_t*, const std::int32_t*, const std::int64_t*, const T*, \
                          const T*, std::int64_t, T*, std::int64_t);                               \
  template void spmm(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,         \
                     const std::int64_t*, const std::int32_t*, const std::int64_t*, const T*,      \
                     const T*, std::int64_t, T*, std::int64_t);                                    \
  template void spmm_backward_values(std::int64_t, std::int64_t, std::int64_t, std::int64_t,       \
                                     const std::int64_t*, const std::int32_t*, const T*,           \
                                     std::int64_t, const T*, std::int64_t, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
