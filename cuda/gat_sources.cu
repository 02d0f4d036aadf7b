#include "column_pairs.cuh"
#include "gat.cuh"
#include "reduce.cuh"

// With g = grad_out of the head, dalpha_ij = keep_ij <g_i, z_j>, c_i from the pass over targets and
// w the slope of LeakyReLU at the edge's score over its denominator D:
//
//   ds_src[j] = sum_i w_ij alpha_ij (dalpha_ij - c_i)
//   dz_j = sum_i keep_ij alpha_ij g_i + ds_src[j] a_src + ds_dst[j] a_dst + own[j] z_j
//   da_src = sum_j ds_src[j] z_j + a_factor a_src,  da_dst = sum_j ds_dst[j] z_j + a_factor a_dst
//
// own is there with a norm only: z_factor[j], minus factor sum_i alpha_ij (dalpha_ij - c_i) t_ij /
// (D r) where denominators have a part of the source (t the score after LeakyReLU, r the root in
// D).

namespace lipgrad::cuda {
namespace {

// What a source's gradient needs besides its sums.
template <class T>
struct SourceArgs {
  const T *z, *a_src, *a_dst, *grad_stats, *factor, *z_factor;
};

// dz of V neighbours from sum = sum_i keep alpha g, for head h of source j.
template <class T, int V>
__device__ __forceinline__ void finish(const SourceArgs<T>& by, std::int64_t targets,
                                       std::int64_t j, int heads, int h, std::int64_t width,
                                       int offset, T ds_src, T through_root, T (&sum)[V]) {
  const T ds_dst = j < targets ? by.grad_stats[(2 * j + 1) * heads + h] : T(0);
  const T own =
      by.z_factor != nullptr ? by.z_factor[j * heads + h] - by.factor[h] * through_root : T(0);
  T x[V], src[V], dst[V];
  read(by.z + j * width + offset, x);
  read(by.a_src + offset, src);
  read(by.a_dst + offset, dst);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    sum[i] += ds_src * src[i];
    sum[i] += ds_dst * dst[i];
    sum[i] += own * x[i];
  }
}

// Numbers of a slot: the H D sums of grad_z, then ds_src and the sum for own[j] of each head.
LIPGRAD_HD inline std::int64_t slot_size(std::int64_t heads, std::int64_t features) {
  return (heads * features + 2 * heads + 3) / 4 * 4;
}

// grad_z(sources, H, D), ds_src(sources, H); slots (2 pieces, slot_size).
template <class T, int V, int C, bool split>
__global__ void __launch_bounds__(kGatThreads, sizeof(T) == 8 ? 3 : 4)
    sources_kernel(GatGraph graph, GatForm form, GatNorm<T> norm, GatLayout layout,
                   SourceArgs<T> args, const T* s_src, const T* stats, const T* grad_out, T* grad_z,
                   T* ds_src, T* slots, std::int64_t warps) {
  using By = GatLanes<V, C>;
  LIPGRAD_SHARED(T, shared_product, [kRowWarps][By::room]);
  LIPGRAD_SHARED(T, shared_weight, [kRowWarps][By::room]);
  LIPGRAD_SHARED(std::int32_t, shared_ids, [kRowWarps][By::most_rows]);
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T* product = shared_product[threadIdx.x / kWarp];
  T* weight = shared_weight[threadIdx.x / kWarp];
  std::int32_t* ids = shared_ids[threadIdx.x / kWarp];

  const RowWork work =
      row_work({graph.sources, graph.edges, graph.reverse_offsets}, warp / layout.groups);
  if (work.row < 0) return;
  const By by(layout, static_cast<int>(warp % layout.groups));
  const GatEdges edges(graph, form.self_loops, work, true);
  const HeadLanes pairs(by.heads);
  const int heads = layout.heads, h = by.first_head + pairs.head;
  const std::int64_t width = layout.width(), j = work.row,
                     g_width = form.mean_heads ? layout.features : width;
  const int g_wrap = form.mean_heads ? static_cast<int>(layout.features) : 0;
  const bool in_slot = work.slot >= 0;
  T* slot = slots + (in_slot ? work.slot : 0) * slot_size(heads, layout.features);
  T* to = in_slot ? slot : grad_z + j * width;

  int offset[C], g_offset[C];
  T own[C][V], acc[C][V] = {};
  const auto stretch = [&](int sub) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      offset[c] = by.offset(sub, c);
      g_offset[c] = offset[c] >= 0 && g_wrap > 0 ? offset[c] % g_wrap : offset[c];
#pragma unroll
      for (int i = 0; i < V; ++i) own[c][i] = T(0);
      if (offset[c] >= 0) read(args.z + j * width + offset[c], own[c]);
    }
  };
  // acc += weight g of the rows at hand.
  const auto accumulate = [&](const T(&x)[By::ahead][C][V], int n) {
#pragma unroll
    for (int u = 0; u < By::ahead; ++u) {
      const int k = u * by.groups + by.group;
      if (k >= n || ids[k] < 0) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const T w = weight[k * by.heads + by.head(c)];
#pragma unroll
        for (int i = 0; i < V; ++i) acc[c][i] += w * x[u][c][i];
      }
    }
  };
  if constexpr (!split) stretch(0);

  const bool normed = norm.target != nullptr;
  const T mine = s_src[j * heads + h], g_scale = form.mean_heads ? T(1) / T(heads) : T(1),
          square = norm.source != nullptr ? norm.source[j * heads + h] : T(0);
  T ds = 0, through_root = 0;
#pragma unroll 1
  for (int base = 0; base < edges.count; base += by.batch()) {
    const int n = edges.count - base < by.batch() ? edges.count - base : by.batch();
#pragma unroll 1
    for (int k = lane; k < n; k += kWarp) ids[k] = edges.at(base + k);
    __syncwarp();
    T x[By::ahead][C][V];
    if constexpr (!split) {
      load_rows(by, grad_out, g_width, g_offset, ids, n, x);
      store_products(by, offset, own, x, n, product);
    } else {
      T part[By::ahead] = {};
#pragma unroll 1
      for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
        stretch(sub);
        load_rows(by, grad_out, g_width, g_offset, ids, n, x);
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
      const std::int64_t i = ids[k];
      if (!pairs.used || i < 0) continue;
      const T* stat = stats + i * 3 * heads + h;
      const T under = normed ? square + norm.target[i * heads + h] : T(0);
      const GatScore<T> score(mine + stat[0], normed, under, T(norm.eps), T(form.negative_slope));
      const T alpha = scalar::exp(score.value - stat[heads]) * stat[2 * heads];
      T kept = g_scale;
      if (form.keep != nullptr) {
        const int at = base + k;
        kept *= keep_factor<T>(
            form, at < edges.edges ? graph.reverse_edge[work.from + at] : graph.edges + j, h);
      }
      const T grad = alpha * (sum_products(by, product, k, pairs.head) * kept -
                              args.grad_stats[i * 2 * heads + h]);
      ds += grad * score.slope * score.inverse;
      if (norm.source != nullptr && score.root > T(0))
        through_root += grad * score.value * score.inverse / score.root;
      weight[k * by.heads + pairs.head] = alpha * kept;
    }
    __syncwarp();
    if constexpr (!split) {
      accumulate(x, n);
    } else {  // the sums of many features are kept in memory
#pragma unroll 1
      for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
        stretch(sub);
        load_rows(by, grad_out, g_width, g_offset, ids, n, x);
#pragma unroll
        for (int c = 0; c < C; ++c) {
#pragma unroll
          for (int i = 0; i < V; ++i) acc[c][i] = T(0);
          if (base > 0 && offset[c] >= 0) read(to + offset[c], acc[c]);
        }
        accumulate(x, n);
#pragma unroll
        for (int c = 0; c < C; ++c)
          if (offset[c] >= 0) write(to + offset[c], acc[c]);
      }
    }
    __syncwarp();
  }
  ds = pairs.reduce(ds, Sum());
  through_root = pairs.reduce(through_root, Sum());
  if (pairs.used && pairs.edge == 0) {
    if (in_slot) {
      slot[width + h] = ds;
      slot[width + heads + h] = through_root;
    } else {
      ds_src[j * heads + h] = ds;
    }
  }
#pragma unroll 1
  for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
    if constexpr (split) stretch(sub);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if constexpr (split) {
#pragma unroll
        for (int i = 0; i < V; ++i) acc[c][i] = T(0);
        if (edges.count > 0 && offset[c] >= 0) read(to + offset[c], acc[c]);
      } else {
#pragma unroll 1
        for (int step = by.lanes; step < kWarp; step *= 2)
#pragma unroll
          for (int i = 0; i < V; ++i) acc[c][i] += __shfl_xor_sync(kAllLanes, acc[c][i], step);
      }
      const int head = by.head(c);
      const T of_head = __shfl_sync(kAllLanes, ds, head),
              root_of_head = __shfl_sync(kAllLanes, through_root, head);
      if (by.group > 0 || offset[c] < 0) continue;
      if (!in_slot)
        finish(args, graph.targets, j, heads, by.first_head + head, width, offset[c], of_head,
               root_of_head, acc[c]);
      write(to + offset[c], acc[c]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    sources_hubs_kernel(GatGraph graph, std::int64_t heads, std::int64_t features,
                        SourceArgs<T> args, const T* slots, T* grad_z, T* ds_src) {
  const Hub hub = hub_of({graph.sources, graph.edges, graph.reverse_offsets}, blockIdx.x);
  if (hub.row < 0) return;
  const std::int64_t width = heads * features, size = slot_size(heads, features);
  const bool writes = threadIdx.x < kWarp;
  for (std::int64_t column = 0; column < heads; column += kWarp) {
    const double ds = hub_sum(hub, slots + width, size, column, heads);
    if (writes && column + threadIdx.x < heads)
      ds_src[hub.row * heads + column + threadIdx.x] = T(ds);
  }
  for (std::int64_t column = 0; column < width; column += kWarp) {
    T sum[1] = {T(hub_sum(hub, slots, size, column, width))};
    const std::int64_t at = column + threadIdx.x % kWarp;
    const std::int64_t h = at < width ? at / features : 0;
    // The sums of the lane's head.
    const double ds = hub_sum(hub, slots + width + h - threadIdx.x % kWarp, size, 0, kWarp),
                 root =
                     hub_sum(hub, slots + width + heads + h - threadIdx.x % kWarp, size, 0, kWarp);
    if (!writes || at >= width) continue;
    finish(args, graph.targets, hub.row, static_cast<int>(heads), static_cast<int>(h), width,
           static_cast<int>(at), T(ds), T(root), sum);
    grad_z[hub.row * width + at] = sum[0];
  }
}

// What a node gives to the gradients of a_src and a_dst.
template <class T>
struct VectorTerms {
  std::int64_t targets, heads, features;
  const T *z, *ds_src, *grad_stats;

  __device__ void operator()(std::int64_t j, std::int64_t c, double& src, double& dst) const {
    const std::int64_t h = c / features;
    const double x = double(z[j * heads * features + c]);
    src = x * double(ds_src[j * heads + h]);
    dst = j < targets ? x * double(grad_stats[(2 * j + 1) * heads + h]) : 0.0;
  }
};

// grad_a = the sums over nodes, plus a_factor a.
template <class T>
__global__ void vectors_finish_kernel(std::int64_t width, std::int64_t features, const T* sums,
                                      const T* a_factor, const T* a_src, const T* a_dst,
                                      T* grad_a_src, T* grad_a_dst) {
  const std::int64_t c = thread_index();
  if (c >= width) return;
  const T factor = a_factor != nullptr ? a_factor[c / features] : T(0);
  grad_a_src[c] = sums[c] + factor * a_src[c];
  grad_a_dst[c] = sums[width + c] + factor * a_dst[c];
}

template <class T, int V, int C, bool split>
void sources_by(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                const SourceArgs<T>& args, const T* s_src, const T* stats, const T* grad_out,
                T* grad_z, T* ds_src) {
  const Csr csr{graph.sources, graph.edges, graph.reverse_offsets};
  const GatLayout layout(form.heads, form.features, V, C);
  const std::int64_t warps = csr.works() * layout.groups;
  const Scratch<T> slots(2 * csr.pieces() * slot_size(form.heads, form.features));
  launch(sources_kernel<T, V, C, split>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, form,
         norm, layout, args, s_src, stats, grad_out, grad_z, ds_src, slots.get(), warps);
  launch(sources_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form.heads,
         form.features, args, slots.get(), grad_z, ds_src);
}

}  // namespace

template <class T>
void gat_backward_sources(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                          const T* factor, const T* z_factor, const T* a_factor, const T* z,
                          const T* s_src, const T* stats, const T* grad_stats, const T* grad_out,
                          const T* a_src, const T* a_dst, T* grad_z, T* grad_a_src, T* grad_a_dst) {
  const bool normed = norm.target != nullptr;
  const std::int64_t width = form.heads * form.features;
  const SourceArgs<T> args{z, a_src, a_dst, grad_stats, factor, normed ? z_factor : nullptr};
  const Scratch<T> ds_src(graph.sources * form.heads);
  with_gat_split<T>(form, fits_float4(form.features, z, grad_out, grad_z, a_src, a_dst),
                    [&](auto v, auto c, auto s) {
                      sources_by<T, decltype(v)::value, decltype(c)::value, decltype(s)::value>(
                          graph, form, norm, args, s_src, stats, grad_out, grad_z, ds_src.get());
                    });
  const Scratch<T> sums(2 * width);
  column_pairs(
      graph.sources, width,
      VectorTerms<T>{graph.targets, form.heads, form.features, z, ds_src.get(), grad_stats},
      sums.get());
  launch(vectors_finish_kernel<T>, blocks_for(width, 128), 128, 0, width, form.features, sums.get(),
         normed ? a_factor : nullptr, a_src, a_dst, grad_a_src, grad_a_dst);
}

template void gat_backward_sources(const GatGraph&, const GatForm&, const GatNorm<float>&,
                                   const float*, const float*, const float*, const float*,
                                   const float*, const float*, const float*, const float*,
                                   const float*, const float*, float*, float*, float*);
template void gat_backward_sources(const GatGraph&, const GatForm&, const GatNorm<double>&,
                                   const double*, const double*, const double*, const double*,
                                   const double*, const double*, const double*, const double*,
                                   const double*, const double*, double*, double*, double*);

}  // namespace lipgrad::cuda
