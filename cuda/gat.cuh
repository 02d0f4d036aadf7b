#pragma once

// C++17. What the kernels of fused graph attention share. A warp works on one row (a target's
// edges, in the last pass a source's) and a few heads: some lanes read a row of features together,
// `V` neighbours each and `C` times; then the lanes become (edge, head) pairs for what is computed
// per edge and head. Nothing but the features' products goes through shared memory, and the numbers
// of a few edges at a time.

#include <type_traits>

#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/ops/kernels/scalar_math.h>

#include "rows.cuh"

namespace lipgrad::cuda {

inline constexpr int kGatThreads = kRowWarps * kWarp;

// How the H heads of D features of a row are shared out.
struct GatLayout {
  int heads, vectors;     // H, D / V
  int group, groups;      // heads of one warp's work, and how many such works make a row
  int split;              // warps' works that share one head of many features, else 1
  int lanes;              // that read one row, a power of two
  std::int64_t features;  // D

  // C: vectors a lane. Heads share a warp where they fit whole, up to 32 of them.
  GatLayout(std::int64_t h, std::int64_t d, int v, int c)
      : heads(static_cast<int>(h)), vectors(static_cast<int>(d / v)), features(d) {
    const int room = kWarp * c;
    const int whole = room / vectors < kWarp ? room / vectors : kWarp;
    group = whole < 1 ? 1 : whole < heads ? whole : heads;
    groups = (heads + group - 1) / group;
    split = (vectors + room - 1) / room;
    const int together = group * vectors;
    lanes = together < kWarp ? power_of_two(together) : kWarp;
    if (lanes < 4) lanes = 4;
  }
  LIPGRAD_HD std::int64_t width() const { return heads * features; }
};

// The lanes of a warp as (edge, head) pairs: the head of a lane, and the edge where it starts.
struct HeadLanes {
  int stride;  // a power of two >= the number of heads
  int head, edge, edges;
  bool used;  // the others have head 0

  __device__ explicit HeadLanes(int heads) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    stride = power_of_two(heads);
    head = lane % stride;
    edge = lane / stride;
    edges = kWarp / stride;
    used = head < heads;
    if (!used) head = 0;
  }
  // The combination over the lanes of the same head, in each of them.
  template <class T, class Op>
  __device__ __forceinline__ T reduce(T value, Op op) const {
#pragma unroll 1
    for (int step = stride; step < kWarp; step *= 2)
      value = op(value, __shfl_xor_sync(kAllLanes, value, step));
    return value;
  }
};

// The edges of a piece of work, and the loop of its node behind them.
struct GatEdges {
  const std::int32_t* other;  // the nodes at the other ends
  std::int32_t node;          // edges to it are passed over; -1: none are
  int edges, count;           // without and with the loop

  // reverse: of source work.row; else of target work.row.
  __device__ GatEdges(const GatGraph& graph, bool loops, const RowWork& work, bool reverse)
      : other((reverse ? graph.reverse_target : graph.source) + work.from), edges(work.count()) {
    const bool loop = loops && (!reverse || work.row < graph.targets);
    node = loop ? static_cast<std::int32_t>(work.row) : -1;
    count = edges + (loop && work.last ? 1 : 0);
  }
  // -1 for an edge that is passed over.
  __device__ __forceinline__ std::int32_t at(int k) const {
    if (k >= edges) return node;
    const std::int32_t j = other[k];
    return j == node ? -1 : j;
  }
};

// What dropout multiplies alpha by.
template <class T>
__device__ __forceinline__ T keep_factor(const GatForm& form, std::int64_t edge, int head) {
  const int bytes = (static_cast<int>(form.heads) + 7) / 8;
  const int bits = form.keep[edge * bytes + head / 8];
  return (bits >> (head % 8)) & 1 ? static_cast<T>(form.keep_scale) : T(0);
}

// An edge's score x after LeakyReLU, from x = s_dst + s_src and what is under the root.
template <class T>
struct GatScore {
  T value, slope;   // phi(x / D), and its slope there
  T root, inverse;  // D = root + eps, 1 / D; 0 and 1 without a norm

  __device__ __forceinline__ GatScore(T x, bool normed, T square, T eps, T negative_slope)
      : root(0), inverse(1) {
    if (normed) {
      root = scalar::sqrt(square);
      inverse = T(1) / (root + eps);
      x *= inverse;
    }
    slope = x > T(0) ? T(1) : negative_slope;
    value = x * slope;
  }
};

// How a warp reads rows of features for one group of heads of a layout.
template <int V, int C>
struct GatLanes {
  static constexpr int ahead = C == 1 ? 4 : 2;    // rows that lanes read before they use them
  static constexpr int room = ahead * C * kWarp;  // products of a batch of rows
  static constexpr int most_rows = ahead * 8;     // of a batch: at least 4 lanes read one

  int lanes, groups, group, lane;  // lanes that read one row, rows read side by side, this lane's
  int vectors, split;              // of a head: vectors, and stretches of them where they are many
  int first_head, heads;
  int products, stride;  // of one (row, head) and of one row

  __device__ GatLanes(const GatLayout& layout, int part)
      : lanes(layout.lanes),
        groups(kWarp / layout.lanes),
        vectors(layout.vectors),
        split(layout.split),
        first_head(part * layout.group) {
    const int own = static_cast<int>(threadIdx.x) % kWarp;
    group = own / lanes;
    lane = own % lanes;
    heads = layout.heads - first_head < layout.group ? layout.heads - first_head : layout.group;
    products = split == 1 ? vectors : kWarp;
    stride = split == 1 ? heads * vectors : kWarp;
  }
  __device__ __forceinline__ int batch() const { return ahead * groups; }
  // Where the lane's vector c of stretch `sub` stands in a row of all heads; -1: there is none.
  __device__ __forceinline__ int offset(int sub, int c) const {
    const int v = (sub * C + c) * lanes + lane;
    return v < heads * vectors ? (first_head * vectors + v) * V : -1;
  }
  // The head of vector c, counted from first_head.
  __device__ __forceinline__ int head(int c) const {
    const int v = c * lanes + lane;
    return split > 1 || v >= heads * vectors ? 0 : v / vectors;
  }
};

// x[u][c] = the lane's vectors of row ids[u * groups + group] < n of the rows; zeros where there is
// none.
template <class T, int V, int C>
__device__ __forceinline__ void load_rows(const GatLanes<V, C>& by, const T* rows,
                                          std::int64_t width, const int (&offset)[C],
                                          const std::int32_t* ids, int n,
                                          T (&x)[GatLanes<V, C>::ahead][C][V]) {
#pragma unroll
  for (int u = 0; u < GatLanes<V, C>::ahead; ++u) {
    const int k = u * by.groups + by.group;
    const std::int32_t j = k < n ? ids[k] : -1;
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < V; ++i) x[u][c][i] = T(0);
      if (j >= 0 && offset[c] >= 0) read(rows + j * width + offset[c], x[u][c]);
    }
  }
}

template <int V, class T>
__device__ __forceinline__ T dot(const T (&a)[V], const T (&b)[V]) {
  T sum = a[0] * b[0];
#pragma unroll
  for (int i = 1; i < V; ++i) sum += a[i] * b[i];
  return sum;
}

// product[k, ...] = what the lanes have of the products of `own` and row k.
template <class T, int V, int C>
__device__ __forceinline__ void store_products(const GatLanes<V, C>& by, const int (&offset)[C],
                                               const T (&own)[C][V],
                                               const T (&x)[GatLanes<V, C>::ahead][C][V], int n,
                                               T* product) {
#pragma unroll
  for (int u = 0; u < GatLanes<V, C>::ahead; ++u) {
    const int k = u * by.groups + by.group;
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (k < n && offset[c] >= 0)
        product[k * by.stride + c * by.lanes + by.lane] = dot(own[c], x[u][c]);
  }
}

// The sum of a (row, head)'s products. Lanes of neighbouring heads start at different ones: they
// are in different banks.
template <class T, int V, int C>
__device__ __forceinline__ T sum_products(const GatLanes<V, C>& by, const T* product, int k,
                                          int head) {
  const T* from = product + k * by.stride + head * by.products;
  int at = head % by.products;
  T sum = 0;
#pragma unroll 1
  for (int t = 0; t < by.products; ++t) {
    sum += from[at];
    at = at + 1 == by.products ? 0 : at + 1;
  }
  return sum;
}

// For the host: f(V, C) as std::integral_constant, for rows of H heads. One vector a lane where a
// row fits, else 256 floats or 128 numbers a warp.
template <class T, class F>
void with_gat_shape(const GatForm& form, bool float4_fits, F&& f) {
  using One = std::integral_constant<int, 1>;
  if constexpr (sizeof(T) == 4) {
    if (float4_fits) {
      using Four = std::integral_constant<int, 4>;
      if (form.heads * form.features <= 4 * kWarp) return f(Four(), One());
      return f(Four(), std::integral_constant<int, 2>());
    }
  }
  if (form.heads * form.features <= kWarp) return f(One(), One());
  f(One(), std::integral_constant<int, 4>());
}

// The same with a third one: whether a head has more features than a warp's lanes hold at a time.
template <class T, class F>
void with_gat_split(const GatForm& form, bool float4_fits, F&& f) {
  with_gat_shape<T>(form, float4_fits, [&](auto v, auto c) {
    constexpr int C = decltype(c)::value;
    if constexpr (C > 1) {
      if (form.features > decltype(v)::value * C * kWarp) return f(v, c, std::true_type());
    }
    f(v, c, std::false_type());
  });
}

}  // namespace lipgrad::cuda
