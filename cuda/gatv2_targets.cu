#include "column_sums.cuh"
#include "gatv2.cuh"
#include "reduce.cuh"

// With g, dalpha, c and w as in graph/kernels/gatv2_targets_cpu.cpp: c_i is known after all edges
// of a row only, so sums are kept of alpha dalpha and of alpha, each times LeakyReLU'(x) and
// LeakyReLU(x), and put together at the row's end. A warp works on kChunk rows one after the other,
// for the sake of the gradient of a.

namespace lipgrad::cuda {
namespace {

constexpr int kChunk = 16;

template <class T>
struct TargetOutputs {
  T *centre, *grad_left, *grad_denominator;
  T* grad_a;  // (chunks + pieces, H, D)
  T* slots;   // (2 pieces, slot)
};

// Numbers of a slot: four sums of all features, then three of each head.
LIPGRAD_HD inline std::int64_t target_slot(std::int64_t heads, std::int64_t features) {
  return (4 * heads * features + 3 * heads + 3) / 4 * 4;
}

template <class T, int V, int C, bool kEdges, bool split>
__global__ void __launch_bounds__(kGatThreads, V* C * sizeof(T) > 32 ? 1
                                               : sizeof(T) == 8      ? 2
                                                                     : 3)
    targets_kernel(Gatv2View<T> view, Gatv2Layout layout, const T* stats, const T* grad_out,
                   TargetOutputs<T> to, std::int64_t chunk_warps, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const GatGraph& graph = view.graph;
  const GatForm& form = view.form;
  const int heads = layout.heads, works = heads * layout.stretches;
  const bool chunk = warp < chunk_warps;
  const std::int64_t number = chunk ? warp : warp - chunk_warps;
  const int part = static_cast<int>(number % works), stretch = part % layout.stretches,
            h = part / layout.stretches;
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const std::int64_t first = chunk ? number / works * kChunk : csr.rows + number / works;
  const std::int64_t last =
      chunk ? (first + kChunk < csr.rows ? first + kChunk : csr.rows) : first + 1;
  const HeadPart<V, C> by(layout);
  const std::int64_t features = layout.features, width = layout.width();
  const T slope = T(form.negative_slope), g_scale = form.mean_heads ? T(1) / T(heads) : T(1);
  const T* a_head = view.in.a + h * features;
  const bool leads = threadIdx.x % kWarp == 0 && stretch == 0;

  T a[C][V], grad_a[C][V] = {};
  load_part(by, stretch, a_head, true, a);
#pragma unroll 1
  for (std::int64_t item = first; item < last; ++item) {
    const RowWork work = row_work(csr, item);
    if (work.row < 0) continue;
    const GatEdges edges(graph, form.self_loops, work, false);
    const T* left = view.in.left + work.row * width + h * features;
    const T* g_row = view.cotangent(grad_out, work.row, h);
    const T top = stats[work.row * 2 * heads + h], over = stats[(work.row * 2 + 1) * heads + h],
            inverse = view.in.inverse != nullptr ? view.in.inverse[work.row * heads + h] : T(1);
    T own[C][V] = {}, g[C][V] = {};
    if constexpr (!split) {
      load_part(by, 0, left, true, own);
      load_part(by, 0, g_row, true, g);
    }
    T left_grad[C][V] = {}, left_plain[C][V] = {}, a_grad[C][V] = {}, a_plain[C][V] = {};
    T sums[3] = {};
#pragma unroll 1
    for (int base = 0; base < edges.count; base += by.groups) {
      const int k = base + by.group;
      const std::int32_t j = k < edges.count ? edges.at(k) : -1;
      const bool there = j >= 0;
      const std::int64_t edge = k < edges.edges ? work.from + k : graph.edges + work.row;
      const T* value = kEdges && there ? view.value(edge) : nullptr;
      const T* right = view.in.right + j * width + h * features;
      T r[C][V] = {}, x[C][V] = {}, score = 0, product = 0;
      const auto both = [&](int sub) {
        load_part(by, sub, right, there, r);
        score += edge_part<T, V, C, kEdges>(view, by, sub, h, own, r, a, value, x);
#pragma unroll
        for (int c = 0; c < C; ++c) product += dot(g[c], r[c]);
      };
      if constexpr (!split) {
        both(0);
      } else {
#pragma unroll 1
        for (int turn = 1; turn <= by.stretches; ++turn) {  // the warp's own comes last
          const int sub = (stretch + turn) % by.stretches;
          load_part(by, sub, left, true, own);
          load_part(by, sub, g_row, true, g);
          load_part(by, sub, a_head, true, a);
          both(sub);
        }
      }
      score = by.sum(score) * inverse;
      product = by.sum(product) * g_scale;
      if (!there) continue;
      const T alpha = scalar::exp(score - top) * over;
      if (form.keep != nullptr) product *= keep_factor<T>(form, edge, h);
      const T with_grad = alpha * product;
      sums[0] += with_grad;
      sums[1] += with_grad * score;
      sums[2] += alpha * score;
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const T phi = x[c][i] > T(0) ? T(1) : slope, y = phi * x[c][i];
          left_grad[c][i] += with_grad * phi;
          left_plain[c][i] += alpha * phi;
          a_grad[c][i] += with_grad * y;
          a_plain[c][i] += alpha * y;
        }
    }
#pragma unroll
    for (int s = 0; s < 3; ++s) sums[s] = by.over_groups(sums[s]);
    if (work.slot >= 0) {
      T* slot = to.slots + work.slot * target_slot(heads, features);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int at = by.offset(stretch, c);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const T all[4] = {by.over_groups(left_grad[c][i]), by.over_groups(left_plain[c][i]),
                            by.over_groups(a_grad[c][i]), by.over_groups(a_plain[c][i])};
          if (by.group == 0 && at >= 0)
#pragma unroll
            for (int s = 0; s < 4; ++s) slot[s * width + h * features + at + i] = all[s];
        }
      }
      if (leads)
        for (int s = 0; s < 3; ++s) slot[4 * width + s * heads + h] = sums[s];
      continue;
    }
    if (leads) {
      to.centre[work.row * heads + h] = sums[0];
      if (to.grad_denominator != nullptr)
        to.grad_denominator[work.row * heads + h] = -inverse * (sums[1] - sums[0] * sums[2]);
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int at = by.offset(stretch, c);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        left_grad[c][i] =
            by.over_groups(left_grad[c][i] - sums[0] * left_plain[c][i]) * inverse * a[c][i];
        grad_a[c][i] += inverse * (a_grad[c][i] - sums[0] * a_plain[c][i]);
      }
      if (by.group == 0 && at >= 0)
        write(to.grad_left + work.row * width + h * features + at, left_grad[c]);
    }
  }
  if (!chunk) return;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int at = by.offset(stretch, c);
#pragma unroll
    for (int i = 0; i < V; ++i) grad_a[c][i] = by.over_groups(grad_a[c][i]);
    if (by.group == 0 && at >= 0)
      write(to.grad_a + first / kChunk * width + h * features + at, grad_a[c]);
  }
}

// A hub's gradients from its slots, and row chunks + piece of grad_a.
template <class T>
__global__ void __launch_bounds__(kGatThreads)
    targets_hubs_kernel(Gatv2View<T> view, TargetOutputs<T> to, std::int64_t chunks) {
  const std::int64_t heads = view.form.heads, features = view.form.features,
                     width = heads * features, size = target_slot(heads, features);
  const Hub hub = hub_of({view.graph.targets, view.graph.edges, view.graph.offsets}, blockIdx.x);
  T* a_row = to.grad_a + (chunks + blockIdx.x) * width;
  if (hub.row < 0) {
    for (std::int64_t c = threadIdx.x; c < width; c += kGatThreads) a_row[c] = T(0);
    return;
  }
  const bool writes = threadIdx.x < kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* inverses = view.in.inverse;
  for (std::int64_t column = 0; column < heads; column += kWarp) {
    double sums[3];
    for (int s = 0; s < 3; ++s)
      sums[s] = hub_sum(hub, to.slots + 4 * width + s * heads, size, column, heads);
    const std::int64_t h = column + lane;
    if (!writes || h >= heads) continue;
    const std::int64_t at = hub.row * heads + h;
    to.centre[at] = T(sums[0]);
    if (to.grad_denominator != nullptr)
      to.grad_denominator[at] =
          T(-double(inverses != nullptr ? inverses[at] : T(1)) * (sums[1] - sums[0] * sums[2]));
  }
  for (std::int64_t column = 0; column < width; column += kWarp) {
    double sums[4];
    for (int s = 0; s < 4; ++s) sums[s] = hub_sum(hub, to.slots + s * width, size, column, width);
    const std::int64_t c = column + lane, h = c < width ? c / features : 0;
    // The centre of the lane's head.
    const double centre = hub_sum(hub, to.slots + 4 * width + h - lane, size, 0, kWarp);
    if (!writes || c >= width) continue;
    const double inverse = inverses != nullptr ? double(inverses[hub.row * heads + h]) : 1.0;
    to.grad_left[hub.row * width + c] =
        T((sums[0] - centre * sums[1]) * inverse * double(view.in.a[c]));
    a_row[c] = T((sums[2] - centre * sums[3]) * inverse);
  }
}

}  // namespace

template <class T>
void gatv2_backward_targets(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                            const T* stats, const T* grad_out, T* centre, T* grad_left, T* grad_a,
                            T* grad_bias, T* grad_denominator) {
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const std::int64_t width = form.heads * form.features, chunks = (csr.rows + kChunk - 1) / kChunk;
  const Scratch<T> slots(2 * csr.pieces() * target_slot(form.heads, form.features)),
      parts((chunks + csr.pieces()) * width);
  const TargetOutputs<T> to{centre, grad_left, grad_denominator, parts.get(), slots.get()};
  with_gatv2_view(graph, form, in, [&](const Gatv2View<T>& view) {
    with_gatv2_shape<T>(
        form, in.edges.features > 0,
        fits_float4(form.features, in.left, in.right, in.a, grad_out, grad_left, to.grad_a,
                    view.edge_weight),
        [&](auto v, auto c, auto edges, auto split) {
          constexpr int V = decltype(v)::value, C = decltype(c)::value;
          const Gatv2Layout layout(form, V, C);
          const std::int64_t works = layout.stretches * form.heads, chunk_warps = chunks * works,
                             warps = chunk_warps + 2 * csr.pieces() * works;
          launch(targets_kernel<T, V, C, decltype(edges)::value, decltype(split)::value>,
                 blocks_for(warps, kRowWarps), kGatThreads, 0, view, layout, stats, grad_out, to,
                 chunk_warps, warps);
        });
    launch(targets_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, view, to, chunks);
  });
  column_sums(chunks + csr.pieces(), width, static_cast<const T*>(parts.get()), grad_a);
  if (grad_bias != nullptr)
    column_sums(graph.targets, form.mean_heads ? form.features : width, grad_out, grad_bias);
}

template void gatv2_backward_targets(const GatGraph&, const GatForm&, const Gatv2Inputs<float>&,
                                     const float*, const float*, float*, float*, float*, float*,
                                     float*);
template void gatv2_backward_targets(const GatGraph&, const GatForm&, const Gatv2Inputs<double>&,
                                     const double*, const double*, double*, double*, double*,
                                     double*, double*);

}  // namespace lipgrad::cuda
