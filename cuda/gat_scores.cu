#include <lipgrad/ops/kernels/dropout.h>

#include "gat.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kBatches = 4;  // of nodes, that a warp goes through

// One head's three scalar products of a row.
template <class T>
struct Products {
  T src, dst, square;
};

// z(sources, H, D) -> s_src(sources, H), stats[:, 0] (targets, 3, H), squares(sources, H) or null.
template <class T, int V, int C>
__global__ void __launch_bounds__(kGatThreads, 4)
    scores_kernel(GatLayout layout, std::int64_t sources, std::int64_t targets, const T* z,
                  const T* a_src, const T* a_dst, T* s_src, T* stats, T* squares,
                  std::int64_t warps) {
  using By = GatLanes<V, C>;
  LIPGRAD_SHARED(Products<T>, shared, [kRowWarps][By::room]);
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  Products<T>* product = shared[threadIdx.x / kWarp];
  const By by(layout, static_cast<int>(warp % layout.groups));
  const HeadLanes pairs(by.heads);
  const std::int64_t width = layout.width(), first = warp / layout.groups * kBatches * by.batch();
#pragma unroll 1
  for (int batch = 0; batch < kBatches; ++batch) {
    const std::int64_t begin = first + batch * by.batch();
    if (begin >= sources) return;
    const int n = sources - begin < by.batch() ? static_cast<int>(sources - begin) : by.batch();
#pragma unroll 1
    for (int sub = 0; sub < by.split; ++sub) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int offset = by.offset(sub, c);
        if (offset < 0 && by.split == 1) continue;
        T src[V] = {}, dst[V] = {};
        if (offset >= 0) {
          read(a_src + offset, src);
          read(a_dst + offset, dst);
        }
        T x[By::ahead][V];
#pragma unroll
        for (int u = 0; u < By::ahead; ++u) {
          const int k = u * by.groups + by.group;
#pragma unroll
          for (int i = 0; i < V; ++i) x[u][i] = T(0);
          if (k < n && offset >= 0) read(z + (begin + k) * width + offset, x[u]);
        }
#pragma unroll
        for (int u = 0; u < By::ahead; ++u) {
          const int k = u * by.groups + by.group;
          if (k >= n) continue;
          const Products<T> p{dot(src, x[u]), dot(dst, x[u]), dot(x[u], x[u])};
          if (by.split == 1) {
            product[k * by.stride + c * by.lanes + by.lane] = p;
          } else {
            Products<T>& sum = product[k * kWarp + by.lane];
            const bool add = sub > 0 || c > 0;
            sum.src = p.src + (add ? sum.src : T(0));
            sum.dst = p.dst + (add ? sum.dst : T(0));
            sum.square = p.square + (add ? sum.square : T(0));
          }
        }
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int k = pairs.edge; k < n; k += pairs.edges) {
      if (!pairs.used) continue;
      const Products<T>* from = product + k * by.stride + pairs.head * by.products;
      Products<T> sum{0, 0, 0};
      int at = pairs.head % by.products;
#pragma unroll 1
      for (int t = 0; t < by.products; ++t) {
        sum.src += from[at].src;
        sum.dst += from[at].dst;
        sum.square += from[at].square;
        at = at + 1 == by.products ? 0 : at + 1;
      }
      const std::int64_t node = begin + k, h = by.first_head + pairs.head;
      s_src[node * layout.heads + h] = sum.src;
      if (node < targets) stats[node * 3 * layout.heads + h] = sum.dst;
      if (squares != nullptr) squares[node * layout.heads + h] = sum.square;
    }
    __syncwarp();
  }
}

template <class T, int V, int C>
void scores_by(std::int64_t sources, std::int64_t targets, std::int64_t heads,
               std::int64_t features, const T* z, const T* a_src, const T* a_dst, T* s_src,
               T* stats, T* squares) {
  const GatLayout layout(heads, features, V, C);
  const std::int64_t rows = kBatches * GatLanes<V, C>::ahead * (kWarp / layout.lanes);
  const std::int64_t warps = (sources + rows - 1) / rows * layout.groups;
  launch(scores_kernel<T, V, C>, blocks_for(warps, kRowWarps), kGatThreads, 0, layout, sources,
         targets, z, a_src, a_dst, s_src, stats, squares, warps);
}

// keep(edges, bytes), by the bytes of 4 edges for the same 8 heads: a thread uses whole blocks of
// the generator but at the ends.
__global__ void keep_kernel(std::int64_t edges, std::int64_t heads, std::int64_t bytes,
                            std::uint32_t threshold, std::uint64_t seed, std::uint64_t draw,
                            std::uint8_t* keep) {
  const std::int64_t t = thread_index(), first = t / bytes * 4, byte = t % bytes;
  const std::int64_t h0 = byte * 8, h1 = h0 + 8 < heads ? h0 + 8 : heads;
  std::uint64_t held = ~std::uint64_t{0};
  PhiloxBlock block{};
  for (std::int64_t e = first; e < first + 4 && e < edges; ++e) {
    unsigned bits = 0;
    for (std::int64_t h = h0; h < h1; ++h) {
      const std::uint64_t word = static_cast<std::uint64_t>(e * heads + h);
      if (word / 4 != held) {
        held = word / 4;
        block = philox(seed, draw, held);
      }
      const std::uint32_t drawn = word % 4 < 2 ? (word % 4 == 0 ? block.word[0] : block.word[1])
                                               : (word % 4 == 2 ? block.word[2] : block.word[3]);
      bits |= static_cast<unsigned>(dropout_keeps(drawn, threshold)) << (h - h0);
    }
    keep[e * bytes + byte] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace

template <class T>
void gat_scores(std::int64_t sources, std::int64_t targets, std::int64_t heads,
                std::int64_t features, const T* z, const T* a_src, const T* a_dst, T* s_src,
                T* stats, T* squares) {
  GatForm form;
  form.heads = heads;
  form.features = features;
  with_gat_shape<T>(form, fits_float4(features, z, a_src, a_dst), [&](auto v, auto c) {
    scores_by<T, decltype(v)::value, decltype(c)::value>(sources, targets, heads, features, z,
                                                         a_src, a_dst, s_src, stats, squares);
  });
}

void gat_keep(std::int64_t edges, std::int64_t heads, double p, std::uint64_t seed,
              std::uint64_t draw, std::uint8_t* keep) {
  const std::int64_t bytes = (heads + 7) / 8, threads = (edges + 3) / 4 * bytes;
  launch(keep_kernel, blocks_for(threads, 256), 256, 0, edges, heads, bytes, dropout_threshold(p),
         seed, draw, keep);
}

template void gat_scores(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const float*,
                         const float*, const float*, float*, float*, float*);
template void gat_scores(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const double*,
                         const double*, const double*, double*, double*, double*);

}  // namespace lipgrad::cuda
