#include "gat.cuh"
#include "gat_slots.cuh"
#include "reduce.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kWeights = 256;  // alpha of some edges for all heads of a warp's work

// acc[c] += weight[k, head[c]] times the lane's vectors of row ids[k] for the n edges at hand. With
// `merge`, heads are edges more: acc[c] += weight[k, h] times those of head h, for all k and h.
template <class T, int V, int C>
__device__ __forceinline__ void add_rows(const T* z, std::int64_t width, std::int64_t features,
                                         int lanes, const int (&offset)[C], const int (&head)[C],
                                         const std::int32_t* ids, const T* weight, int heads, int n,
                                         bool merge, T (&acc)[C][V]) {
  constexpr int ahead = C == 1 ? 4 : 2;
  const int groups = kWarp / lanes, group = static_cast<int>(threadIdx.x) % kWarp / lanes;
  const int items = merge ? n * heads : n;
#pragma unroll 1
  for (int base = group; base < items; base += ahead * groups) {
    T x[ahead][C][V], w[ahead][C];
#pragma unroll
    for (int u = 0; u < ahead; ++u) {
      const int t = base + u * groups, k = merge ? t / heads : t, h = merge ? t - k * heads : 0;
      const std::int32_t j = t < items ? ids[k] : -1;
      const T* row = z + j * width + h * features;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const bool there = j >= 0 && offset[c] >= 0;
        w[u][c] = there ? weight[k * heads + (merge ? h : head[c])] : T(0);
#pragma unroll
        for (int i = 0; i < V; ++i) x[u][c][i] = T(0);
        if (there) read(row + offset[c], x[u][c]);
      }
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < V; ++i) acc[c][i] += w[u][c] * x[u][c][i];
  }
}

// out(targets, H, D), or (targets, D) of the mean of heads; stats (targets, 3, H); slots (2 pieces,
// slot_size). `whole` is the layout of rows, `cut` that of slots; row_warps warps work on rows.
template <class T, int V, int C>
__global__ void __launch_bounds__(kGatThreads, sizeof(T) == 8 ? 3 : 4)
    forward_kernel(GatGraph graph, GatForm form, GatNorm<T> norm, GatLayout whole, GatLayout cut,
                   const T* z, const T* s_src, const T* bias, T* stats, T* out, T* slots,
                   std::int64_t row_warps, std::int64_t warps) {
  LIPGRAD_SHARED(T, shared_weight, [kRowWarps][kWeights]);
  LIPGRAD_SHARED(std::int32_t, shared_ids, [kRowWarps][kWarp]);
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T* weight = shared_weight[threadIdx.x / kWarp];
  std::int32_t* ids = shared_ids[threadIdx.x / kWarp];

  const bool row = warp < row_warps, merge = row && form.mean_heads;
  const GatLayout layout = row ? whole : cut;
  const std::int64_t number = row ? warp : warp - row_warps;
  const int works = layout.groups * layout.split;
  const int part = static_cast<int>(number % works);
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const RowWork work = row_work(csr, number / works + (row ? 0 : csr.rows));
  if (work.row < 0) return;

  const int heads = static_cast<int>(form.heads), features = static_cast<int>(form.features);
  const std::int64_t width = static_cast<std::int64_t>(heads) * features;
  const GatEdges edges(graph, form.self_loops, work, false);
  const int sub = part % layout.split, first_head = part / layout.split * layout.group;
  int h0 = first_head, n_heads = heads - h0 < layout.group ? heads - h0 : layout.group;
  int offset[C], head[C];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int v = (sub * C + c) * layout.lanes + lane % layout.lanes;
    const int count = merge ? layout.vectors : n_heads * layout.vectors;
    head[c] = v < count ? v / layout.vectors : 0;
    offset[c] = v < count ? (h0 * layout.vectors + v) * V : -1;
  }
  if (merge) n_heads = heads < kWarp ? heads : kWarp;

  T acc[C][V] = {};
  T inverse = 0;
  while (true) {  // once, or for 32 heads at a time
    const HeadLanes pairs(n_heads);
    const int h = h0 + pairs.head;
    const T own = stats[work.row * 3 * heads + h];
    const bool normed = norm.target != nullptr;
    const T own_square = normed ? norm.target[work.row * heads + h] : T(0);
    const auto score = [&](std::int32_t j) {
      const T square = norm.source != nullptr
                           ? own_square + norm.source[std::int64_t{j} * heads + h]
                           : own_square;
      return GatScore<T>(own + s_src[std::int64_t{j} * heads + h], normed, square, T(norm.eps),
                         T(form.negative_slope))
          .value;
    };
    const int batch = kWeights / n_heads < kWarp ? kWeights / n_heads : kWarp;
    const bool once = edges.count <= batch;
    T top = -INFINITY, sum = 0;
    if (!once) {
#pragma unroll 1
      for (int k = pairs.edge; k < edges.count; k += pairs.edges) {
        const std::int32_t j = edges.at(k);
        if (j >= 0) merge_sums(top, sum, score(j), T(1));
      }
#pragma unroll 1
      for (int step = pairs.stride; step < kWarp; step *= 2) {
        const T other_top = __shfl_xor_sync(kAllLanes, top, step),
                other_sum = __shfl_xor_sync(kAllLanes, sum, step);
        merge_sums(top, sum, other_top, other_sum);
      }
    }
#pragma unroll 1
    for (int base = 0; base < edges.count; base += batch) {
      const int n = edges.count - base < batch ? edges.count - base : batch;
      if (lane < n) ids[lane] = edges.at(base + lane);
      __syncwarp();
#pragma unroll 1
      for (int k = pairs.edge; k < n; k += pairs.edges) {
        const std::int32_t j = ids[k];
        const T x = j >= 0 ? score(j) : T(-INFINITY);
        if (pairs.used) weight[k * n_heads + pairs.head] = x;
        if (once && x > top) top = x;
      }
      if (once) top = pairs.reduce(top, [](T a, T b) { return a > b ? a : b; });
#pragma unroll 1
      for (int k = pairs.edge; k < n; k += pairs.edges) {
        if (!pairs.used || ids[k] < 0) continue;
        T& w = weight[k * n_heads + pairs.head];
        const T p = scalar::exp(w - top);
        if (once) sum += p;
        w = p;
        if (form.keep != nullptr) {
          const int k_all = base + k;
          w *= keep_factor<T>(form,
                              k_all < edges.edges ? work.from + k_all : graph.edges + work.row, h);
        }
      }
      if (once) sum = pairs.reduce(sum, Sum());
      if (merge) {
        const T scale = T(1) / (sum * T(heads));
#pragma unroll 1
        for (int k = pairs.edge; k < n; k += pairs.edges)
          if (pairs.used) weight[k * n_heads + pairs.head] *= scale;
      }
      __syncwarp();
      add_rows(z + (merge ? h0 * features : 0), width, features, layout.lanes, offset, head, ids,
               weight, n_heads, n, merge, acc);
      __syncwarp();
    }
    const bool any = edges.count > 0;
    inverse = any ? T(1) / sum : T(0);
    if (pairs.used && pairs.edge == 0 && sub == 0) {
      if (row) {
        stats[(work.row * 3 + 1) * heads + h] = any ? top : T(0);
        stats[(work.row * 3 + 2) * heads + h] = inverse;
      } else {
        T* slot = slots + work.slot * slot_size(heads, features) + width + h;
        slot[0] = top;
        slot[heads] = sum;
      }
    }
    if (!merge || h0 + n_heads >= heads) break;
    h0 += n_heads;
    n_heads = heads - h0 < kWarp ? heads - h0 : kWarp;
  }

  const bool writes = lane < layout.lanes;
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll 1
    for (int step = layout.lanes; step < kWarp; step *= 2)
#pragma unroll
      for (int i = 0; i < V; ++i) acc[c][i] += __shfl_xor_sync(kAllLanes, acc[c][i], step);
    const T scale = __shfl_sync(kAllLanes, inverse, head[c]);
    if (!writes || offset[c] < 0) continue;
    if (!row) {
      write(slots + work.slot * slot_size(heads, features) + offset[c], acc[c]);
      continue;
    }
    T y[V], shift[V] = {};
    if (bias != nullptr) read(bias + offset[c], shift);
#pragma unroll
    for (int i = 0; i < V; ++i) y[i] = acc[c][i] * (merge ? T(1) : scale) + shift[i];
    write(out + work.row * (merge ? features : width) + offset[c], y);
  }
}

template <class T, int V, int C>
void forward_by(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm, const T* z,
                const T* s_src, const T* bias, T* stats, T* out) {
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const GatLayout cut(form.heads, form.features, V, C);
  const GatLayout whole = form.mean_heads ? GatLayout(1, form.features, V, C) : cut;
  const std::int64_t row_warps = csr.rows * whole.groups * whole.split,
                     warps = row_warps + 2 * csr.pieces() * cut.groups * cut.split;
  const Scratch<T> slots(2 * csr.pieces() * slot_size(form.heads, form.features));
  launch(forward_kernel<T, V, C>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, form, norm,
         whole, cut, z, s_src, bias, stats, out, slots.get(), row_warps, warps);
  launch(forward_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form,
         slots.get(), bias, stats, 3 * form.heads, form.heads, out);
}

}  // namespace

template <class T>
void gat_forward(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm, const T* z,
                 const T* s_src, const T* bias, T* stats, T* out) {
  with_gat_shape<T>(form, fits_float4(form.features, z, bias, out), [&](auto v, auto c) {
    forward_by<T, decltype(v)::value, decltype(c)::value>(graph, form, norm, z, s_src, bias, stats,
                                                          out);
  });
}

template void gat_forward(const GatGraph&, const GatForm&, const GatNorm<float>&, const float*,
                          const float*, const float*, float*, float*);
template void gat_forward(const GatGraph&, const GatForm&, const GatNorm<double>&, const double*,
                          const double*, const double*, double*, double*);

}  // namespace lipgrad::cuda
