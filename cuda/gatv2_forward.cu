#include "gat_slots.cuh"
#include "gatv2.cuh"

namespace lipgrad::cuda {
namespace {

// out(targets, H, D), or (targets, D) of the mean of heads; stats(targets, 2, H); slots (2 pieces,
// slot_size). Works of rows come first: one for each head and stretch, with mean_heads one for each
// stretch, which goes through the heads. Then those of slots.
template <class T, int V, int C, bool kEdges, bool split>
__global__ void __launch_bounds__(kGatThreads, V* C * sizeof(T) > 32 ? 2
                                               : sizeof(T) == 8      ? 3
                                                                     : 4)
    forward_kernel(Gatv2View<T> view, Gatv2Layout layout, const T* bias, T* stats, T* out, T* slots,
                   std::int64_t row_warps, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const GatGraph& graph = view.graph;
  const GatForm& form = view.form;
  const bool row = warp < row_warps, merge = row && form.mean_heads;
  const int heads = layout.heads, works = (merge ? 1 : heads) * layout.stretches;
  const std::int64_t number = row ? warp : warp - row_warps;
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const RowWork work = row_work(csr, number / works + (row ? 0 : csr.rows));
  if (work.row < 0) return;
  const int part = static_cast<int>(number % works), stretch = part % layout.stretches;
  const int first_head = part / layout.stretches, last_head = merge ? heads : first_head + 1;
  const HeadPart<V, C> by(layout);
  const GatEdges edges(graph, form.self_loops, work, false);
  const std::int64_t features = layout.features, width = layout.width();

  T mean[C][V] = {};
#pragma unroll 1
  for (int h = first_head; h < last_head; ++h) {
    const T inverse = view.in.inverse != nullptr ? view.in.inverse[work.row * heads + h] : T(1);
    const T* left = view.in.left + work.row * width + h * features;
    T own[C][V] = {}, a[C][V] = {}, acc[C][V] = {};
    if constexpr (!split) {
      load_part(by, 0, left, true, own);
      load_part(by, 0, view.in.a + h * features, true, a);
    }
    T top = -INFINITY, sum = 0;
#pragma unroll 1
    for (int base = 0; base < edges.count; base += by.groups) {
      const int k = base + by.group;
      const std::int32_t j = k < edges.count ? edges.at(k) : -1;
      const bool there = j >= 0;
      const std::int64_t edge = k < edges.edges ? work.from + k : graph.edges + work.row;
      const T* value = kEdges && there ? view.value(edge) : nullptr;
      const T* right = view.in.right + j * width + h * features;
      T r[C][V] = {}, x[C][V] = {}, score = 0;
      if constexpr (!split) {
        load_part(by, 0, right, there, r);
        score = edge_part<T, V, C, kEdges>(view, by, 0, h, own, r, a, value, x);
      } else {
#pragma unroll 1
        for (int sub = 0; sub < by.stretches; ++sub) {
          load_part(by, sub, left, true, own);
          load_part(by, sub, view.in.a + h * features, true, a);
          load_part(by, sub, right, there, r);
          score += edge_part<T, V, C, kEdges>(view, by, sub, h, own, r, a, value, x);
        }
        load_part(by, stretch, right, there, r);
      }
      score = by.sum(score) * inverse;
      if (!there) continue;
      T weight = 1;
      if (score > top) {
        const T less = shifted_exp(top, score);
        sum *= less;
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
          for (int i = 0; i < V; ++i) acc[c][i] *= less;
        top = score;
      } else {
        weight = shifted_exp(score, top);
      }
      sum += weight;
      if (form.keep != nullptr) weight *= keep_factor<T>(form, edge, h);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < V; ++i) acc[c][i] += weight * r[c][i];
    }
#pragma unroll 1
    for (int step = by.lanes; step < kWarp; step *= 2) {
      const T other_top = __shfl_xor_sync(kAllLanes, top, step),
              other_sum = __shfl_xor_sync(kAllLanes, sum, step);
      const T most = other_top > top ? other_top : top;
      const T mine = shifted_exp(top, most), theirs = shifted_exp(other_top, most);
      top = most;
      sum = sum * mine + other_sum * theirs;
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < V; ++i)
          acc[c][i] = acc[c][i] * mine + __shfl_xor_sync(kAllLanes, acc[c][i], step) * theirs;
    }
    const bool any = edges.count > 0, first = threadIdx.x % kWarp == 0 && stretch == 0;
    if (!row) {
      T* slot = slots + work.slot * slot_size(heads, features);
      if (first) {
        slot[width + h] = top;
        slot[width + heads + h] = sum;
      }
#pragma unroll
      for (int c = 0; c < C; ++c)
        if (const int at = by.offset(stretch, c); by.group == 0 && at >= 0)
          write(slot + h * features + at, acc[c]);
      continue;
    }
    const T over = any ? T(1) / sum : T(0);
    if (first) {
      stats[work.row * 2 * heads + h] = any ? top : T(0);
      stats[(work.row * 2 + 1) * heads + h] = over;
    }
    const T scale = merge ? over / T(heads) : over;
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < V; ++i) mean[c][i] += acc[c][i] * scale;
  }
  if (!row || by.group != 0) return;
  const std::int64_t column = merge ? 0 : first_head * features, columns = merge ? features : width;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int at = by.offset(stretch, c);
    if (at < 0) continue;
    T shift[V] = {};
    if (bias != nullptr) read(bias + column + at, shift);
#pragma unroll
    for (int i = 0; i < V; ++i) shift[i] += mean[c][i];
    write(out + work.row * columns + column + at, shift);
  }
}

// length(rows, H) of x(rows, H, D): `lanes` lanes each.
template <class T>
__global__ void lengths_kernel(std::int64_t n, std::int64_t features, int lanes, const T* x,
                               T* length) {
  const std::int64_t item = thread_index() / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  T sum = 0;
  if (item < n)
    for (std::int64_t c = lane; c < features; c += lanes)
      sum += x[item * features + c] * x[item * features + c];
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (item < n && lane == 0) length[item] = scalar::sqrt(sum);
}

template <class T>
__global__ void scaled_heads_kernel(std::int64_t n, std::int64_t heads, std::int64_t features,
                                    bool shared, const T* factor, const T* y, T* x) {
  const std::int64_t at = thread_index();
  if (at >= n) return;
  const std::int64_t head = at / features;
  x[at] += factor[shared ? head % heads : head] * y[at];
}

}  // namespace

template <class T>
void gatv2_forward(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                   const T* bias, T* stats, T* out) {
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const Scratch<T> slots(2 * csr.pieces() * slot_size(form.heads, form.features));
  with_gatv2_view(graph, form, in, [&](const Gatv2View<T>& view) {
    with_gatv2_shape<T>(
        form, in.edges.features > 0,
        fits_float4(form.features, in.left, in.right, in.a, bias, out, view.edge_weight),
        [&](auto v, auto c, auto edges, auto split) {
          constexpr int V = decltype(v)::value, C = decltype(c)::value;
          const Gatv2Layout layout(form, V, C);
          const std::int64_t row_warps =
                                 csr.rows * layout.stretches * (form.mean_heads ? 1 : form.heads),
                             warps = row_warps + 2 * csr.pieces() * layout.stretches * form.heads;
          launch(forward_kernel<T, V, C, decltype(edges)::value, decltype(split)::value>,
                 blocks_for(warps, kRowWarps), kGatThreads, 0, view, layout, bias, stats, out,
                 slots.get(), row_warps, warps);
        });
  });
  launch(forward_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form,
         slots.get(), bias, stats, 2 * form.heads, std::int64_t{0}, out);
}

template <class T>
void head_lengths(std::int64_t rows, std::int64_t heads, std::int64_t features, const T* x,
                  T* length) {
  const int lanes = features < kWarp ? power_of_two(static_cast<int>(features)) : kWarp;
  const std::int64_t n = rows * heads;
  launch(lengths_kernel<T>, blocks_for(n * lanes, 256), 256, 0, n, features, lanes, x, length);
}

template <class T>
void add_scaled_heads(std::int64_t rows, std::int64_t heads, std::int64_t features, bool shared,
                      const T* factor, const T* y, T* x) {
  const std::int64_t n = rows * heads * features;
  launch(scaled_heads_kernel<T>, blocks_for(n, 256), 256, 0, n, heads, features, shared, factor, y,
         x);
}

#define LIPGRAD_GATV2(T)                                                                        \
  template void gatv2_forward(const GatGraph&, const GatForm&, const Gatv2Inputs<T>&, const T*, \
                              T*, T*);                                                          \
  template void head_lengths(std::int64_t, std::int64_t, std::int64_t, const T*, T*);           \
  template void add_scaled_heads(std::int64_t, std::int64_t, std::int64_t, bool, const T*,      \
                                 const T*, T*)
LIPGRAD_GATV2(float);
LIPGRAD_GATV2(double);
#undef LIPGRAD_GATV2

}  // namespace lipgrad::cuda
