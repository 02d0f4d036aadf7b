#pragma once

// C++17. What the kernels of attention with GATv2's scores share. A warp works on one row and one
// head: `lanes` lanes read the head's features of an edge's node together, V neighbours each and C
// times, and as many groups of lanes as fit work on edges side by side. Heads of more features than
// that are gone through by stretches, each of which has a warp of its own that computes the whole
// score.

#include <type_traits>

#include <lipgrad/graph/kernels/gatv2.h>

#include "gat.cuh"

namespace lipgrad::cuda {

struct Gatv2Layout {
  int heads, vectors, lanes, stretches;
  std::int64_t features;

  Gatv2Layout(const GatForm& form, int v, int c)
      : heads(static_cast<int>(form.heads)),
        vectors(static_cast<int>(form.features / v)),
        lanes(vectors < kWarp ? power_of_two(vectors) : kWarp),
        stretches((vectors + lanes * c - 1) / (lanes * c)),
        features(form.features) {}
  LIPGRAD_HD std::int64_t width() const { return heads * features; }
};

// f(V, C, kEdges, split) as constants: whether edges have features, and whether there are several
// stretches.
template <class T, class F>
void with_gatv2_shape(const GatForm& form, bool edges, bool float4_fits, F&& f) {
  const auto with_edges = [&](auto v, auto c, auto split) {
    if (edges) return f(v, c, std::true_type(), split);
    f(v, c, std::false_type(), split);
  };
  const auto with_count = [&](auto v) {
    constexpr int V = decltype(v)::value;
    const std::int64_t vectors = form.features / V;
    using Four = std::integral_constant<int, 4>;
    if (vectors <= kWarp) return with_edges(v, std::integral_constant<int, 1>(), std::false_type());
    if (vectors <= 4 * kWarp) return with_edges(v, Four(), std::false_type());
    with_edges(v, Four(), std::true_type());
  };
  if constexpr (sizeof(T) == 4)
    if (float4_fits) return with_count(std::integral_constant<int, 4>());
  with_count(std::integral_constant<int, 1>());
}

// One lane's part of a head's features.
template <int V, int C>
struct HeadPart {
  int lanes, groups, group, lane, vectors, stretches;

  __device__ explicit HeadPart(const Gatv2Layout& layout)
      : lanes(layout.lanes),
        groups(kWarp / layout.lanes),
        vectors(layout.vectors),
        stretches(layout.stretches) {
    const int own = static_cast<int>(threadIdx.x) % kWarp;
    group = own / lanes;
    lane = own % lanes;
  }
  // Where vector c of stretch `sub` begins; -1: there is none.
  __device__ __forceinline__ int offset(int sub, int c) const {
    const int v = (sub * C + c) * lanes + lane;
    return v < vectors ? v * V : -1;
  }
  // The sum over the lanes of the group, in each of them; the whole warp calls it.
  template <class T>
  __device__ __forceinline__ T sum(T x) const {
#pragma unroll 1
    for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
  }
  // The sum over the groups, in each of them.
  template <class T>
  __device__ __forceinline__ T over_groups(T x) const {
#pragma unroll 1
    for (int step = lanes; step < kWarp; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
  }
};

template <class T, int V, int C>
__device__ __forceinline__ void load_part(const HeadPart<V, C>& by, int sub, const T* from,
                                          bool there, T (&x)[C][V]) {
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int at = by.offset(sub, c);
#pragma unroll
    for (int i = 0; i < V; ++i) x[c][i] = T(0);
    if (there && at >= 0) read(from + at, x[c]);
  }
}

// x += sum_f value[f] weight[f, :], weight(F, H D) from the head's first column on.
template <class T, int V, int C>
__device__ __forceinline__ void add_edge(const HeadPart<V, C>& by, int sub, const T* weight,
                                         std::int64_t width, const T* value, int features,
                                         T (&x)[C][V]) {
  if (value == nullptr) return;
#pragma unroll 1
  for (int f = 0; f < features; ++f) {
    const T by_f = value[f];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int at = by.offset(sub, c);
      if (at < 0) continue;
      T w[V];
      read(weight + f * width + at, w);
#pragma unroll
      for (int i = 0; i < V; ++i) x[c][i] += by_f * w[i];
    }
  }
}

// What all kernels read; edge_weight is transposed: (F, H D).
template <class T>
struct Gatv2View {
  GatGraph graph;
  GatForm form;
  Gatv2Inputs<T> in;
  const T* edge_weight;

  // Features of edge `number`, or of the loop of a node; null: zeros.
  __device__ __forceinline__ const T* value(std::int64_t number) const {
    if (number < graph.edges) return in.edges.value + number * in.edges.features;
    return in.edges.loop != nullptr ? in.edges.loop + (number - graph.edges) * in.edges.features
                                    : nullptr;
  }
  __device__ __forceinline__ const T* cotangent(const T* grad_out, std::int64_t i, int h) const {
    return form.mean_heads ? grad_out + i * form.features
                           : grad_out + (i * form.heads + h) * form.features;
  }
};

// One edge between a node whose head's features are `own` and one whose are `row`: x of the
// stretch, and the lanes' part of <a, LeakyReLU(x)>.
template <class T, int V, int C, bool kEdges>
__device__ __forceinline__ T edge_part(const Gatv2View<T>& view, const HeadPart<V, C>& by, int sub,
                                       int h, const T (&own)[C][V], const T (&row)[C][V],
                                       const T (&a)[C][V], const T* value, T (&x)[C][V]) {
#pragma unroll
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int i = 0; i < V; ++i) x[c][i] = own[c][i] + row[c][i];
  if constexpr (kEdges)
    add_edge(by, sub, view.edge_weight + h * view.form.features,
             view.form.heads * view.form.features, value, static_cast<int>(view.in.edges.features),
             x);
  const T slope = T(view.form.negative_slope);
  T sum = 0;
#pragma unroll
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int i = 0; i < V; ++i) sum += a[c][i] * (x[c][i] > T(0) ? x[c][i] : slope * x[c][i]);
  return sum;
}

// weight(H D, F) -> (F, H D).
template <class T>
__global__ void gatv2_transpose_kernel(std::int64_t width, std::int64_t features, const T* weight,
                                       T* to) {
  const std::int64_t at = thread_index();
  if (at < width * features) to[at] = weight[at % width * features + at / width];
}

// For the host: f(view) with the transposed weight of edges.
template <class T, class F>
void with_gatv2_view(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in, F&& f) {
  const std::int64_t width = form.heads * form.features, n = width * in.edges.features;
  const Scratch<T> weight(n);
  if (n > 0)
    launch(gatv2_transpose_kernel<T>, blocks_for(n, 256), 256, 0, width, in.edges.features,
           in.edges.weight, weight.get());
  f(Gatv2View<T>{graph, form, in, weight.get()});
}

}  // namespace lipgrad::cuda
