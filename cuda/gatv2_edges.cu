#include "column_sums.cuh"
#include "gatv2.cuh"
#include "reduce.cuh"

// With y_ij = w_ij a LeakyReLU'(x_ij), the gradient at x_ij: grad_weight = sum_ij y_ij edge_ij^T
// and grad_edge_ij = W^T y_ij. Edges, and the loops of all nodes behind them, are shared out by
// number.

namespace lipgrad::cuda {
namespace {

constexpr int kTogether = 4;  // features of edges whose sums a warp keeps

template <class T>
struct EdgeArgs {
  const T *stats, *centre, *grad_out;
};

// The edges [first, last) of all, one for each group of lanes at a time.
template <class T, int V, int C>
struct EdgeWalk {
  const Gatv2View<T>& view;
  std::int64_t row;  // of the group's last edge

  __device__ EdgeWalk(const Gatv2View<T>& v, std::int64_t first)
      : view(v),
        row(first < v.graph.edges ? row_of({v.graph.targets, v.graph.edges, v.graph.offsets}, first)
                                  : 0) {}
  // The ends of an edge; numbers go up. source -1: it is passed over.
  __device__ void ends(std::int64_t number, std::int64_t& target, std::int64_t& source) {
    const GatGraph& graph = view.graph;
    if (number >= graph.edges) {
      target = source = number - graph.edges;
      return;
    }
    while (graph.offsets[row + 1] <= number) ++row;
    target = row;
    source = graph.source[number];
    if (view.form.self_loops && source == target) source = -1;
  }
};

// y of one edge and head, for stretch `stretch`; the whole warp calls it.
template <class T, int V, int C, bool split>
__device__ __forceinline__ void edge_gradient(const Gatv2View<T>& view, const EdgeArgs<T>& args,
                                              const HeadPart<V, C>& by, int stretch, int h,
                                              std::int64_t number, std::int64_t target,
                                              std::int64_t source, bool there, T (&y)[C][V]) {
  const std::int64_t heads = view.form.heads, features = view.form.features,
                     width = heads * features, i = there ? target : 0, j = there ? source : 0;
  const T *left = view.in.left + i * width + h * features,
          *right = view.in.right + j * width + h * features,
          *g_row = view.cotangent(args.grad_out, i, h), *a_head = view.in.a + h * features,
          *value = there ? view.value(number) : nullptr;
  T a[C][V] = {}, x[C][V] = {}, score = 0, product = 0;
  const auto both = [&](int sub) {
    T l[C][V], r[C][V], g[C][V];
    load_part(by, sub, left, there, l);
    load_part(by, sub, right, there, r);
    load_part(by, sub, g_row, there, g);
    load_part(by, sub, a_head, true, a);
    score += edge_part<T, V, C, true>(view, by, sub, h, l, r, a, value, x);
#pragma unroll
    for (int c = 0; c < C; ++c) product += dot(g[c], r[c]);
  };
  if constexpr (!split) {
    both(0);
  } else {
#pragma unroll 1
    for (int turn = 1; turn <= by.stretches; ++turn) both((stretch + turn) % by.stretches);
  }
  score = by.sum(score);
  product = by.sum(product);
  T weight = 0;
  if (there) {
    const T inverse = view.in.inverse != nullptr ? view.in.inverse[i * heads + h] : T(1);
    const T alpha = scalar::exp(score * inverse - args.stats[i * 2 * heads + h]) *
                    args.stats[(i * 2 + 1) * heads + h];
    if (view.form.mean_heads) product /= T(heads);
    if (view.form.keep != nullptr) product *= keep_factor<T>(view.form, number, h);
    weight = alpha * (product - args.centre[i * heads + h]) * inverse;
  }
  const T slope = T(view.form.negative_slope);
#pragma unroll
  for (int c = 0; c < C; ++c)
#pragma unroll
    for (int v = 0; v < V; ++v) y[c][v] = weight * a[c][v] * (x[c][v] > T(0) ? T(1) : slope);
}

// parts(chunks, F, H D): a warp for each chunk, head, stretch and kTogether features of edges.
template <class T, int V, int C, bool split>
__global__ void __launch_bounds__(kGatThreads, V* C * sizeof(T) > 32 ? 1 : 2)
    weight_kernel(Gatv2View<T> view, Gatv2Layout layout, EdgeArgs<T> args, std::int64_t items,
                  std::int64_t length, int tiles, T* parts, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const int works = layout.heads * layout.stretches * tiles;
  int part = static_cast<int>(warp % works);
  const int tile = part % tiles;
  part /= tiles;
  const int stretch = part % layout.stretches, h = part / layout.stretches;
  const std::int64_t chunk = warp / works, first = chunk * length,
                     last = first + length < items ? first + length : items;
  const int count = static_cast<int>(view.in.edges.features), f0 = tile * kTogether;
  const HeadPart<V, C> by(layout);
  EdgeWalk<T, V, C> walk(view, first);
  T sum[kTogether][C][V] = {};
#pragma unroll 1
  for (std::int64_t base = first; base < last; base += by.groups) {
    const std::int64_t number = base + by.group;
    std::int64_t target = 0, source = -1;
    if (number < last) walk.ends(number, target, source);
    const bool there = source >= 0;
    T y[C][V];
    edge_gradient<T, V, C, split>(view, args, by, stretch, h, number, target, source, there, y);
    const T* value = there ? view.value(number) : nullptr;
    if (value == nullptr) continue;
#pragma unroll
    for (int f = 0; f < kTogether; ++f) {
      const T by_f = f0 + f < count ? value[f0 + f] : T(0);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < V; ++i) sum[f][c][i] += by_f * y[c][i];
    }
  }
#pragma unroll
  for (int f = 0; f < kTogether; ++f)
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int at = by.offset(stretch, c);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[f][c][i] = by.over_groups(sum[f][c][i]);
      if (by.group == 0 && at >= 0 && f0 + f < count)
        write(parts + (chunk * count + f0 + f) * layout.width() + h * layout.features + at,
              sum[f][c]);
    }
}

// grad_value(E, F) and grad_loop(targets, F): a group of lanes for each edge, all heads.
template <class T, int V, int C, bool split>
__global__ void __launch_bounds__(kGatThreads, V* C * sizeof(T) > 32 ? 1 : 2)
    values_kernel(Gatv2View<T> view, Gatv2Layout layout, EdgeArgs<T> args, std::int64_t items,
                  std::int64_t length, T* grad_value, T* grad_loop, std::int64_t warps) {
  const std::int64_t chunk = thread_index() / kWarp;
  if (chunk >= warps) return;
  const std::int64_t first = chunk * length, last = first + length < items ? first + length : items;
  const int count = static_cast<int>(view.in.edges.features);
  const HeadPart<V, C> by(layout);
  EdgeWalk<T, V, C> walk(view, first);
#pragma unroll 1
  for (std::int64_t base = first; base < last; base += by.groups) {
    const std::int64_t number = base + by.group;
    std::int64_t target = 0, source = -1;
    if (number < last) walk.ends(number, target, source);
    const bool loop = number >= view.graph.edges;
    T* to = loop ? grad_loop : grad_value;
    const bool writes = number < last && to != nullptr && by.lane == 0;
    if (to != nullptr) to += (loop ? number - view.graph.edges : number) * count;
    if (writes)
      for (int f = 0; f < count; ++f) to[f] = T(0);
#pragma unroll 1
    for (int h = 0; h < layout.heads; ++h)
#pragma unroll 1
      for (int sub = 0; sub < by.stretches; ++sub) {
        T y[C][V];
        edge_gradient<T, V, C, split>(view, args, by, sub, h, number, target, source, source >= 0,
                                      y);
        const T* weight = view.edge_weight + h * layout.features;
#pragma unroll 1
        for (int f = 0; f < count; ++f) {
          T w[C][V], sum = 0;
          load_part(by, sub, weight + f * layout.width(), true, w);
#pragma unroll
          for (int c = 0; c < C; ++c) sum += dot(w[c], y[c]);
          sum = by.sum(sum);
          if (writes) to[f] += sum;
        }
      }
  }
}

template <class T>
__global__ void transpose_back_kernel(std::int64_t width, std::int64_t features, const T* weight,
                                      T* to) {
  const std::int64_t at = thread_index();
  if (at < width * features) to[at] = weight[at % features * width + at / features];
}

}  // namespace

template <class T>
void gatv2_backward_edges(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                          const T* stats, const T* centre, const T* grad_out, T* grad_weight,
                          T* grad_value, T* grad_loop) {
  const std::int64_t items = graph.edges + (form.self_loops ? graph.targets : 0),
                     width = form.heads * form.features, count = in.edges.features;
  std::int64_t length = (items + 511) / 512;
  if (length < 64) length = 64;
  const std::int64_t chunks = (items + length - 1) / length;
  const Scratch<T> parts(grad_weight != nullptr ? chunks * count * width : 0),
      total(grad_weight != nullptr ? count * width : 0);
  const EdgeArgs<T> args{stats, centre, grad_out};
  with_gatv2_view(graph, form, in, [&](const Gatv2View<T>& view) {
    with_gatv2_shape<T>(
        form, false,
        fits_float4(form.features, in.left, in.right, in.a, grad_out, view.edge_weight,
                    parts.get()),
        [&](auto v, auto c, auto, auto split) {
          constexpr int V = decltype(v)::value, C = decltype(c)::value;
          constexpr bool kSplit = decltype(split)::value;
          const Gatv2Layout layout(form, V, C);
          if (grad_weight != nullptr) {
            const int tiles = static_cast<int>((count + kTogether - 1) / kTogether);
            const std::int64_t warps = chunks * layout.heads * layout.stretches * tiles;
            launch(weight_kernel<T, V, C, kSplit>, blocks_for(warps, kRowWarps), kGatThreads, 0,
                   view, layout, args, items, length, tiles, parts.get(), warps);
          }
          if (grad_value != nullptr || grad_loop != nullptr) {
            const std::int64_t few = 64, warps = (items + few - 1) / few;
            launch(values_kernel<T, V, C, kSplit>, blocks_for(warps, kRowWarps), kGatThreads, 0,
                   view, layout, args, items, few, grad_value, grad_loop, warps);
          }
        });
  });
  if (grad_weight == nullptr) return;
  column_sums(chunks, count * width, static_cast<const T*>(parts.get()), total.get());
  launch(transpose_back_kernel<T>, blocks_for(count * width, 256), 256, 0, width, count,
         total.get(), grad_weight);
}

template void gatv2_backward_edges(const GatGraph&, const GatForm&, const Gatv2Inputs<float>&,
                                   const float*, const float*, const float*, float*, float*,
                                   float*);
template void gatv2_backward_edges(const GatGraph&, const GatForm&, const Gatv2Inputs<double>&,
                                   const double*, const double*, const double*, double*, double*,
                                   double*);

}  // namespace lipgrad::cuda
