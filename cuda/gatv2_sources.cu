#include "gatv2.cuh"
#include "reduce.cuh"

// With g, dalpha, c and w as in graph/kernels/gatv2_targets_cpu.cpp: grad_right_j = sum_i keep_ij
// alpha_ij g_i + a sum_i w_ij LeakyReLU'(x_ij).

namespace lipgrad::cuda {
namespace {

// grad_right(sources, H, D); slots (2 pieces, H, D).
template <class T, int V, int C, bool kEdges, bool split>
__global__ void __launch_bounds__(kGatThreads, V* C * sizeof(T) > 32 ? 2
                                               : sizeof(T) == 8      ? 3
                                                                     : 4)
    sources_kernel(Gatv2View<T> view, Gatv2Layout layout, const T* stats, const T* centre,
                   const T* grad_out, T* grad_right, T* slots, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const GatGraph& graph = view.graph;
  const GatForm& form = view.form;
  const int heads = layout.heads, works = heads * layout.stretches,
            part = static_cast<int>(warp % works), stretch = part % layout.stretches,
            h = part / layout.stretches;
  const RowWork work = row_work({graph.sources, graph.edges, graph.reverse_offsets}, warp / works);
  if (work.row < 0) return;
  const HeadPart<V, C> by(layout);
  const GatEdges edges(graph, form.self_loops, work, true);
  const std::int64_t features = layout.features, width = layout.width();
  const T slope = T(form.negative_slope), g_scale = form.mean_heads ? T(1) / T(heads) : T(1);
  const T *right = view.in.right + work.row * width + h * features,
          *a_head = view.in.a + h * features;

  T own[C][V], a[C][V], sum[C][V] = {};
  load_part(by, stretch, right, true, own);
  load_part(by, stretch, a_head, true, a);
#pragma unroll 1
  for (int base = 0; base < edges.count; base += by.groups) {
    const int k = base + by.group;
    const std::int32_t other = k < edges.count ? edges.at(k) : -1;
    const bool there = other >= 0;
    const std::int64_t i = there ? other : 0;
    std::int64_t edge = graph.edges + work.row;
    if ((kEdges || form.keep != nullptr) && there && k < edges.edges)
      edge = graph.reverse_edge[work.from + k];
    const T* value = kEdges && there ? view.value(edge) : nullptr;
    const T *left = view.in.left + i * width + h * features,
            *g_row = view.cotangent(grad_out, i, h);
    T l[C][V] = {}, g[C][V] = {}, x[C][V] = {}, score = 0, product = 0;
    const auto both = [&](int sub) {
      load_part(by, sub, left, there, l);
      load_part(by, sub, g_row, there, g);
      score += edge_part<T, V, C, kEdges>(view, by, sub, h, own, l, a, value, x);
#pragma unroll
      for (int c = 0; c < C; ++c) product += dot(g[c], own[c]);
    };
    if constexpr (!split) {
      both(0);
    } else {
#pragma unroll 1
      for (int turn = 1; turn <= by.stretches; ++turn) {  // the warp's own comes last
        const int sub = (stretch + turn) % by.stretches;
        load_part(by, sub, right, true, own);
        load_part(by, sub, a_head, true, a);
        both(sub);
      }
    }
    score = by.sum(score);
    product = by.sum(product) * g_scale;
    if (!there) continue;
    const T inverse = view.in.inverse != nullptr ? view.in.inverse[i * heads + h] : T(1);
    const T alpha =
        scalar::exp(score * inverse - stats[i * 2 * heads + h]) * stats[(i * 2 + 1) * heads + h];
    T kept = alpha * g_scale;
    if (form.keep != nullptr) {
      const T keep = keep_factor<T>(form, edge, h);
      kept *= keep;
      product *= keep;
    }
    const T weight = alpha * (product - centre[i * heads + h]) * inverse;
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int v = 0; v < V; ++v)
        sum[c][v] += kept * g[c][v] + weight * (x[c][v] > T(0) ? T(1) : slope) * a[c][v];
  }
  T* to = work.slot >= 0 ? slots + work.slot * width : grad_right + work.row * width;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int at = by.offset(stretch, c);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[c][i] = by.over_groups(sum[c][i]);
    if (by.group == 0 && at >= 0) write(to + h * features + at, sum[c]);
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    sources_hubs_kernel(GatGraph graph, std::int64_t width, const T* slots, T* grad_right) {
  const Hub hub = hub_of({graph.sources, graph.edges, graph.reverse_offsets}, blockIdx.x);
  if (hub.row < 0) return;
  for (std::int64_t column = 0; column < width; column += kWarp) {
    const double sum = hub_sum(hub, slots, width, column, width);
    if (threadIdx.x < kWarp && column + threadIdx.x < width)
      grad_right[hub.row * width + column + threadIdx.x] = T(sum);
  }
}

}  // namespace

template <class T>
void gatv2_backward_sources(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                            const T* stats, const T* centre, const T* grad_out, T* grad_right) {
  const Csr csr{graph.sources, graph.edges, graph.reverse_offsets};
  const std::int64_t width = form.heads * form.features;
  const Scratch<T> slots(2 * csr.pieces() * width);
  with_gatv2_view(graph, form, in, [&](const Gatv2View<T>& view) {
    with_gatv2_shape<T>(
        form, in.edges.features > 0,
        fits_float4(form.features, in.left, in.right, in.a, grad_out, grad_right, slots.get(),
                    view.edge_weight),
        [&](auto v, auto c, auto edges, auto split) {
          constexpr int V = decltype(v)::value, C = decltype(c)::value;
          const Gatv2Layout layout(form, V, C);
          const std::int64_t warps = csr.works() * layout.stretches * form.heads;
          launch(sources_kernel<T, V, C, decltype(edges)::value, decltype(split)::value>,
                 blocks_for(warps, kRowWarps), kGatThreads, 0, view, layout, stats, centre,
                 grad_out, grad_right, slots.get(), warps);
        });
  });
  launch(sources_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, width,
         slots.get(), grad_right);
}

template void gatv2_backward_sources(const GatGraph&, const GatForm&, const Gatv2Inputs<float>&,
                                     const float*, const float*, const float*, float*);
template void gatv2_backward_sources(const GatGraph&, const GatForm&, const Gatv2Inputs<double>&,
                                     const double*, const double*, const double*, double*);

}  // namespace lipgrad::cuda
