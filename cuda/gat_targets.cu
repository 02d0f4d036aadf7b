#include "column_sums.cuh"
#include "gat.cuh"
#include "reduce.cuh"

// With g = grad_out of the head and dalpha_ij = keep_ij <g_i, z_j>, one pass over the edges of i
// gives c_i = sum_j alpha_ij dalpha_ij, and of each weight w_ij of an edge's gradient sum_j w alpha
// (dalpha - c_i) = sum_j w alpha dalpha - c_i sum_j w alpha: the slope of LeakyReLU over the
// denominator D for ds_dst, and with a norm those of dL/dr / r and of dL/dr r.

namespace lipgrad::cuda {
namespace {

// sum alpha dalpha; sum w alpha dalpha and sum w alpha for each of the three weights.
constexpr int kSums = 7;

// From the sums of one (target, head), `stride` apart.
template <class T, class S>
__device__ void write_gradients(const S* sums, std::int64_t stride, std::int64_t heads,
                                std::int64_t target, std::int64_t h, T* grad_stats, T* grad_norm) {
  const auto centred = [&](int weight) {
    return sums[(1 + 2 * weight) * stride] - sums[0] * sums[(2 + 2 * weight) * stride];
  };
  grad_stats[2 * target * heads + h] = static_cast<T>(sums[0]);
  grad_stats[(2 * target + 1) * heads + h] = static_cast<T>(centred(0));
  if (grad_norm == nullptr) return;
  grad_norm[2 * target * heads + h] = static_cast<T>(-centred(1));
  grad_norm[(2 * target + 1) * heads + h] = static_cast<T>(-centred(2));
}

// grad_out(targets, H, D), or (targets, D) for the mean of heads; grad_stats, grad_norm(targets, 2,
// H), grad_norm null without a norm; slots(2 pieces, kSums, H).
template <class T, int V, int C, bool split>
__global__ void __launch_bounds__(kGatThreads, sizeof(T) == 8 ? 3 : 4)
    targets_kernel(GatGraph graph, GatForm form, GatNorm<T> norm, GatLayout layout, const T* z,
                   const T* s_src, const T* stats, const T* grad_out, T* grad_stats, T* grad_norm,
                   T* slots, std::int64_t warps) {
  using By = GatLanes<V, C>;
  LIPGRAD_SHARED(T, shared_product, [kRowWarps][By::room]);
  LIPGRAD_SHARED(std::int32_t, shared_ids, [kRowWarps][By::most_rows]);
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T* product = shared_product[threadIdx.x / kWarp];
  std::int32_t* ids = shared_ids[threadIdx.x / kWarp];

  const RowWork work = row_work({graph.targets, graph.edges, graph.offsets}, warp / layout.groups);
  if (work.row < 0) return;
  const By by(layout, static_cast<int>(warp % layout.groups));
  const GatEdges edges(graph, form.self_loops, work, false);
  const HeadLanes pairs(by.heads);
  const int heads = layout.heads, h = by.first_head + pairs.head;
  const std::int64_t width = layout.width();
  const T* g = grad_out + work.row * (form.mean_heads ? layout.features : width);
  const int g_wrap = form.mean_heads ? static_cast<int>(layout.features) : 0;

  int offset[C];
  T own[C][V];
  const auto stretch = [&](int sub) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      offset[c] = by.offset(sub, c);
#pragma unroll
      for (int i = 0; i < V; ++i) own[c][i] = T(0);
      if (offset[c] >= 0) read(g + (g_wrap > 0 ? offset[c] % g_wrap : offset[c]), own[c]);
    }
  };
  if constexpr (!split) stretch(0);

  const T* stat = stats + work.row * 3 * heads + h;
  const T s_dst = stat[0], top = stat[heads], scale = stat[2 * heads],
          g_scale = form.mean_heads ? T(1) / T(heads) : T(1);
  const bool normed = norm.target != nullptr;
  const T square = normed ? norm.target[work.row * heads + h] : T(0);
  T sums[kSums] = {};
#pragma unroll 1
  for (int base = 0; base < edges.count; base += by.batch()) {
    const int n = edges.count - base < by.batch() ? edges.count - base : by.batch();
#pragma unroll 1
    for (int k = lane; k < n; k += kWarp) ids[k] = edges.at(base + k);
    __syncwarp();
    T x[By::ahead][C][V];
    if constexpr (!split) {
      load_rows(by, z, width, offset, ids, n, x);
      store_products(by, offset, own, x, n, product);
    } else {
      T part[By::ahead] = {};
#pragma unroll 1
      for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
        stretch(sub);
        load_rows(by, z, width, offset, ids, n, x);
#pragma unroll
        for (int u = 0; u < By::ahead; ++u)
#pragma unroll
          for (int c = 0; c < C; ++c) part[u] += dot(own[c], x[u][c]);
      }
#pragma unroll
      for (int u = 0; u < By::ahead; ++u)
        if (u < n) product[u * kWarp + lane] = part[u];
    }
    __syncwarp();
#pragma unroll 1
    for (int k = pairs.edge; k < n; k += pairs.edges) {
      const std::int64_t j = ids[k];
      if (!pairs.used || j < 0) continue;
      T under = square;
      if (norm.source != nullptr) under += norm.source[j * heads + h];
      const GatScore<T> score(s_dst + s_src[j * heads + h], normed, under, T(norm.eps),
                              T(form.negative_slope));
      const T alpha = scalar::exp(score.value - top) * scale;
      T grad = sum_products(by, product, k, pairs.head) * g_scale;
      if (form.keep != nullptr) {
        const int at = base + k;
        grad *= keep_factor<T>(form, at < edges.edges ? work.from + at : graph.edges + work.row, h);
      }
      const T with_grad = alpha * grad;
      sums[0] += with_grad;
      const T slope = score.slope * score.inverse;
      sums[1] += slope * with_grad;
      sums[2] += slope * alpha;
      if (normed) {
        const T near = score.root > T(0) ? score.value * score.inverse / score.root : T(0),
                far = score.value * score.inverse * score.root;
        sums[3] += near * with_grad;
        sums[4] += near * alpha;
        sums[5] += far * with_grad;
        sums[6] += far * alpha;
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s) sums[s] = pairs.reduce(sums[s], Sum());
  if (!pairs.used || pairs.edge != 0) return;
  if (work.slot < 0) {
    write_gradients(sums, 1, heads, work.row, h, grad_stats, grad_norm);
  } else {
#pragma unroll
    for (int s = 0; s < kSums; ++s) slots[(work.slot * kSums + s) * heads + h] = sums[s];
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    targets_hubs_kernel(GatGraph graph, std::int64_t heads, const T* slots, T* grad_stats,
                        T* grad_norm) {
  const Hub hub = hub_of({graph.targets, graph.edges, graph.offsets}, blockIdx.x);
  if (hub.row < 0) return;
  for (std::int64_t h = 0; h < heads; h += kWarp) {
    double sums[kSums];
#pragma unroll
    for (int s = 0; s < kSums; ++s)
      sums[s] = hub_sum(hub, slots + s * heads, kSums * heads, h, heads);
    if (threadIdx.x < kWarp && h + threadIdx.x < heads)
      write_gradients(sums, 1, heads, hub.row, h + threadIdx.x, grad_stats, grad_norm);
  }
}

template <class T, int V, int C, bool split>
void targets_by(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm, const T* z,
                const T* s_src, const T* stats, const T* grad_out, T* grad_stats, T* grad_norm) {
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const GatLayout layout(form.heads, form.features, V, C);
  const std::int64_t warps = csr.works() * layout.groups;
  const Scratch<T> slots(2 * csr.pieces() * kSums * form.heads);
  T* norms = norm.target != nullptr ? grad_norm : nullptr;
  launch(targets_kernel<T, V, C, split>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, form,
         norm, layout, z, s_src, stats, grad_out, grad_stats, norms, slots.get(), warps);
  launch(targets_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form.heads,
         slots.get(), grad_stats, norms);
}

}  // namespace

template <class T>
void gat_backward_targets(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                          const T* z, const T* s_src, const T* stats, const T* grad_out,
                          T* grad_stats, T* grad_norm, T* grad_bias) {
  with_gat_split<T>(form, fits_float4(form.features, z, grad_out), [&](auto v, auto c, auto s) {
    targets_by<T, decltype(v)::value, decltype(c)::value, decltype(s)::value>(
        graph, form, norm, z, s_src, stats, grad_out, grad_stats, grad_norm);
  });
  if (grad_bias != nullptr)
    column_sums(graph.targets, form.mean_heads ? form.features : form.heads * form.features,
                grad_out, grad_bias);
}

template void gat_backward_targets(const GatGraph&, const GatForm&, const GatNorm<float>&,
                                   const float*, const float*, const float*, const float*, float*,
                                   float*, float*);
template void gat_backward_targets(const GatGraph&, const GatForm&, const GatNorm<double>&,
                                   const double*, const double*, const double*, const double*,
                                   double*, double*, double*);

}  // namespace lipgrad::cuda
