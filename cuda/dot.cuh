#pragma once

// C++17, private to cuda/. The one kernel of all three passes of dot-product attention over rows. A
// warp works on one row (a target's edges, in the last pass a source's) and a few heads, as the
// kernels of gat.cuh do: some lanes read the rows of two arrays at the other ends of edges
// together, their products with the row's own go through shared memory, and (edge, head) pairs of
// lanes make weights of them, by which the rows at hand are summed.

#include <lipgrad/graph/kernels/dot_attention.h>

#include "gat.cuh"
#include "reduce.cuh"

namespace lipgrad::cuda {

enum class DotPass { forward, targets, sources };

// Rows of H D numbers, or of D numbers that all heads share (wrap = D, else 0).
template <class T>
struct DotRows {
  const T* at = nullptr;
  std::int64_t row = 0;
  int wrap = 0;

  __device__ __forceinline__ int place(int offset) const {
    return offset >= 0 && wrap > 0 ? offset % wrap : offset;
  }
};

template <class T>
struct DotArgs {
  // t = <own[0], far[0]> and dL/dalpha = <own[1], far[1]>.
  DotRows<T> own[2], far[2];
  T far_scale = 1;  // of the second product: 1 / H where heads share g
  const T *scale, *qe, *e, *edge_cotangent;
  T *stats, *centre;
  T* sum[2];  // what the pass writes for each node, rows sum_row apart
  std::int64_t sum_row[2];
  T *edge_sum, *edge_plain;  // (targets, H, Fe)
  T *grad_scale, *plain;     // plain: scratch (targets, H, D) for heads of many features
  T* slots;
};

// Numbers of a slot: one or two times H D sums, as many times H Fe, then two of each head.
LIPGRAD_HD inline std::int64_t dot_slot_size(const DotForm& form, int sums) {
  return (sums * form.heads * (form.features + form.edge_features) + 2 * form.heads + 3) / 4 * 4;
}

// <a, b> of n numbers that one lane reads.
template <class T>
__device__ __forceinline__ T short_dot(const T* a, const T* b, int n) {
  T sum = 0;
#pragma unroll 1
  for (int f = 0; f < n; ++f) sum += a[f] * b[f];
  return sum;
}

template <class T, int V, int C, bool split, DotPass pass>
__global__ void __launch_bounds__(kGatThreads, pass == DotPass::forward && sizeof(T) == 4 ? 4 : 3)
    dot_kernel(GatGraph graph, DotForm form, GatLayout layout, DotArgs<T> args,
               std::int64_t warps) {
  using By = GatLanes<V, C>;
  constexpr bool forward = pass == DotPass::forward, reverse = pass == DotPass::sources;
  constexpr int kSums = forward ? 1 : 2, kDots = forward ? 1 : 2;
  constexpr int kFrom0 = forward ? 1 : 0, kFrom1 = reverse ? 1 : 0;  // what each sum is of
  LIPGRAD_SHARED(T, shared_product, [kRowWarps][kDots][By::room]);
  LIPGRAD_SHARED(T, shared_weight, [kRowWarps][kSums][By::room]);
  LIPGRAD_SHARED(T, shared_head, [kRowWarps][kWarp]);
  LIPGRAD_SHARED(std::int32_t, shared_ids, [kRowWarps][By::most_rows]);
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            own_warp = static_cast<int>(threadIdx.x) / kWarp;
  auto& product = shared_product[own_warp];
  auto& weight = shared_weight[own_warp];
  T* of_head = shared_head[own_warp];
  std::int32_t* ids = shared_ids[own_warp];

  const Csr csr{reverse ? graph.sources : graph.targets, graph.edges,
                reverse ? graph.reverse_offsets : graph.offsets};
  const RowWork work = row_work(csr, warp / layout.groups);
  if (work.row < 0) return;
  const By by(layout, static_cast<int>(warp % layout.groups));
  const GatEdges edges(graph, form.self_loops, work, reverse);
  const HeadLanes pairs(by.heads);
  const int heads = layout.heads, h = by.first_head + pairs.head,
            fe = static_cast<int>(form.edge_features);
  const std::int64_t width = layout.width(), row = work.row;
  const bool in_slot = work.slot >= 0;
  T* slot = args.slots + (in_slot ? work.slot : 0) * dot_slot_size(form, kSums);
  T *to[2], *edge_to[2];
  to[0] = in_slot ? slot : args.sum[0] + row * args.sum_row[0];
  to[1] = in_slot                    ? slot + width
          : pass == DotPass::targets ? args.plain + row * width
                                     : args.sum[1] + row * args.sum_row[1];
  edge_to[0] = in_slot ? slot + kSums * width : args.edge_sum + row * heads * fe;
  edge_to[1] = in_slot ? slot + kSums * width + heads * fe : args.edge_plain + row * heads * fe;

  int offset[C], far_offset[C];
  T own[kDots][C][V], acc[kSums][C][V] = {};
  const auto stretch = [&](int sub) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      offset[c] = by.offset(sub, c);
      far_offset[c] = args.far[1].place(offset[c]);
#pragma unroll
      for (int m = 0; m < kDots; ++m) {
#pragma unroll
        for (int i = 0; i < V; ++i) own[m][c][i] = T(0);
        if (offset[c] >= 0)
          read(args.own[m].at + row * args.own[m].row + args.own[m].place(offset[c]), own[m][c]);
      }
    }
  };
  T x[2][By::ahead][C][V];
  const auto load = [&](int n) {
    load_rows(by, args.far[0].at, args.far[0].row, offset, ids, n, x[0]);
    load_rows(by, args.far[1].at, args.far[1].row, far_offset, ids, n, x[1]);
  };
  const auto accumulate = [&](int n) {
#pragma unroll
    for (int u = 0; u < By::ahead; ++u) {
      const int k = u * by.groups + by.group;
      if (k >= n || ids[k] < 0) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int at = k * by.heads + by.head(c);
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
          const T w = weight[s][at];
#pragma unroll
          for (int i = 0; i < V; ++i) acc[s][c][i] += w * x[s == 0 ? kFrom0 : kFrom1][u][c][i];
        }
      }
    }
  };
  if constexpr (!split) stretch(0);

  T multiplier = 0, top = forward ? T(-INFINITY) : T(0), inverse = 0, sum = 0;
  if constexpr (forward)
    multiplier = T(form.factor) * (args.scale != nullptr ? args.scale[row * heads + h] : T(1));
  if constexpr (pass == DotPass::targets) {
    const T* stat = args.stats + row * 3 * heads + h;
    multiplier = stat[0];
    top = stat[heads];
    inverse = stat[2 * heads];
  }
  // Number of an edge, -1 for a loop.
  const auto edge_of = [&](int at) -> std::int64_t {
    if (at >= edges.edges) return -1;
    return reverse ? graph.reverse_edge[work.from + at] : work.from + at;
  };
#pragma unroll 1
  for (int base = 0; base < edges.count; base += by.batch()) {
    const int n = edges.count - base < by.batch() ? edges.count - base : by.batch();
#pragma unroll 1
    for (int k = lane; k < n; k += kWarp) ids[k] = edges.at(base + k);
    __syncwarp();
    if constexpr (!split) {
      load(n);
#pragma unroll
      for (int m = 0; m < kDots; ++m) store_products(by, offset, own[m], x[m], n, product[m]);
    } else {
      T part[kDots][By::ahead] = {};
#pragma unroll 1
      for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
        stretch(sub);
        load(n);
#pragma unroll
        for (int m = 0; m < kDots; ++m)
#pragma unroll
          for (int u = 0; u < By::ahead; ++u)
#pragma unroll
            for (int c = 0; c < C; ++c) part[m][u] += dot(own[m][c], x[m][u][c]);
      }
#pragma unroll
      for (int m = 0; m < kDots; ++m)
#pragma unroll
        for (int u = 0; u < By::ahead; ++u)
          if (u < n) product[m][u * kWarp + lane] = part[m][u];
    }
    __syncwarp();
    T highest = top, shrink = 1;
#pragma unroll 1
    for (int k = pairs.edge; k < n; k += pairs.edges) {
      const std::int64_t j = ids[k];
      if (!pairs.used || j < 0) continue;
      const std::int64_t edge = fe > 0 || form.keep != nullptr ? edge_of(base + k) : -1;
      const std::int64_t target = reverse ? j : row;
      T t = sum_products(by, product[0], k, pairs.head);
      if (fe > 0 && edge >= 0)
        t += short_dot(args.qe + (target * heads + h) * fe, args.e + edge * fe, fe);
      const int at = k * by.heads + pairs.head;
      if constexpr (forward) {
        t *= multiplier;
        weight[0][at] = t;
        if (t > highest) highest = t;
      } else {
        T grad = sum_products(by, product[1], k, pairs.head) * args.far_scale, kept = 1;
        if (fe > 0 && edge >= 0 && args.edge_cotangent != nullptr)
          grad +=
              short_dot(args.edge_cotangent + (target * heads + h) * fe, args.e + edge * fe, fe);
        if (form.keep != nullptr)
          kept = keep_factor<T>(form, edge >= 0 ? edge : graph.edges + row, h);
        grad *= kept;
        if constexpr (pass == DotPass::targets) {
          const T alpha = scalar::exp(t * multiplier - top) * inverse;
          weight[0][at] = alpha * grad;
          weight[1][at] = alpha;
          sum += alpha * grad;
        } else {
          const T* stat = args.stats + j * 3 * heads + h;
          const T m = stat[0], alpha = scalar::exp(t * m - stat[heads]) * stat[2 * heads];
          weight[0][at] = alpha * (grad - args.centre[j * heads + h]) * m;
          weight[1][at] = alpha * kept * args.far_scale;
        }
      }
    }
    if constexpr (forward) {
      highest = pairs.reduce(highest, [](T a, T b) { return a > b ? a : b; });
      shrink = top == highest ? T(1) : scalar::exp(top - highest);
      top = highest;
      sum *= shrink;
#pragma unroll 1
      for (int k = pairs.edge; k < n; k += pairs.edges) {
        if (!pairs.used || ids[k] < 0) continue;
        T& w = weight[0][k * by.heads + pairs.head];
        w = scalar::exp(w - top);
        sum += w;
        if (form.keep != nullptr) {
          const std::int64_t edge = edge_of(base + k);
          w *= keep_factor<T>(form, edge >= 0 ? edge : graph.edges + row, h);
        }
      }
      if (pairs.used && pairs.edge == 0) of_head[pairs.head] = shrink;
    }
    __syncwarp();
    if constexpr (!split) {
      if constexpr (forward) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          const T by_shrink = of_head[by.head(c)];
#pragma unroll
          for (int i = 0; i < V; ++i) acc[0][c][i] *= by_shrink;
        }
      }
      accumulate(n);
    } else {  // the sums of many features are kept in memory
#pragma unroll 1
      for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
        stretch(sub);
        load(n);
#pragma unroll
        for (int s = 0; s < kSums; ++s)
#pragma unroll
          for (int c = 0; c < C; ++c) {
#pragma unroll
            for (int i = 0; i < V; ++i) acc[s][c][i] = T(0);
            if (base > 0 && offset[c] >= 0) read(to[s] + offset[c], acc[s][c]);
            if constexpr (forward)
#pragma unroll
              for (int i = 0; i < V; ++i) acc[s][c][i] *= of_head[0];
          }
        accumulate(n);
#pragma unroll
        for (int s = 0; s < kSums; ++s)
#pragma unroll
          for (int c = 0; c < C; ++c)
            if (offset[c] >= 0) write(to[s] + offset[c], acc[s][c]);
      }
    }
    if constexpr (!reverse) {
#pragma unroll 1
      for (int f = lane; f < by.heads * fe; f += kWarp) {
        const int head = f / fe, at = by.first_head * fe + f;
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
          T total = base > 0 ? edge_to[s][at] : T(0);
          if constexpr (forward) total *= of_head[head];
#pragma unroll 1
          for (int k = 0; k < n; ++k)
            if (ids[k] >= 0 && base + k < edges.edges)
              total += weight[s][k * by.heads + head] *
                       args.e[(work.from + base + k) * fe + f - head * fe];
          edge_to[s][at] = total;
        }
      }
    }
    __syncwarp();
  }

  // What is of (row, head): c; or the sum of exp(score - top).
  if constexpr (!reverse) sum = pairs.reduce(sum, Sum());
  const bool first = pairs.used && pairs.edge == 0;
  const bool any = edges.count > 0;
  if constexpr (forward) inverse = any ? T(1) / sum : T(0);
  if (first && in_slot && !reverse) {
    T* numbers = slot + kSums * (width + heads * fe) + h;
    numbers[0] = forward ? top : sum;
    if constexpr (forward) numbers[heads] = sum;
  } else if (first && forward) {
    T* stat = args.stats + row * 3 * heads + h;
    stat[0] = multiplier;
    stat[heads] = any ? top : T(0);
    stat[2 * heads] = inverse;
  } else if (first && pass == DotPass::targets) {
    args.centre[row * heads + h] = sum;
  }
  // <q, dq / m> by head.
  T through = 0;
  if constexpr (pass == DotPass::targets) {
    if (!in_slot) {
      if (first && any)
#pragma unroll 1
        for (int f = 0; f < fe; ++f) {
          const int at = h * fe + f;
          through += args.qe[row * heads * fe + at] * (edge_to[0][at] - sum * edge_to[1][at]);
        }
      __syncwarp();
    }
  }
  if constexpr (!reverse) {
    if (!in_slot && fe > 0) {
#pragma unroll 1
      for (int f = lane; f - lane < by.heads * fe; f += kWarp) {
        const int head = f < by.heads * fe ? f / fe : 0, at = by.first_head * fe + f;
        const T a = __shfl_sync(kAllLanes, forward ? inverse : multiplier, head),
                c = __shfl_sync(kAllLanes, sum, head);
        if (f >= by.heads * fe) continue;
        T y = 0;
        if (any) y = forward ? edge_to[0][at] * a : (edge_to[0][at] - c * edge_to[1][at]) * a;
        edge_to[0][at] = y;
      }
    }
  }
  T lane_through = 0;
#pragma unroll 1
  for (int sub = 0; sub < (split ? by.split : 1); ++sub) {
    if constexpr (split) stretch(sub);
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        if constexpr (split) {
#pragma unroll
          for (int i = 0; i < V; ++i) acc[s][c][i] = T(0);
          if (any && offset[c] >= 0) read(to[s] + offset[c], acc[s][c]);
        } else {
#pragma unroll 1
          for (int step = by.lanes; step < kWarp; step *= 2)
#pragma unroll
            for (int i = 0; i < V; ++i)
              acc[s][c][i] += __shfl_xor_sync(kAllLanes, acc[s][c][i], step);
        }
      }
      const int head = by.head(c);
      const T a = __shfl_sync(kAllLanes, forward ? inverse : multiplier, head),
              centre = __shfl_sync(kAllLanes, sum, head);
      const bool writes = by.group == 0 && offset[c] >= 0;
      if (!in_slot) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if constexpr (forward) acc[0][c][i] *= a;
          if constexpr (pass == DotPass::targets) acc[0][c][i] -= centre * acc[kSums - 1][c][i];
        }
        if constexpr (pass == DotPass::targets) {
          const T p = dot(own[0][c], acc[0][c]);
          lane_through += p;
          if (!split && writes) product[0][c * by.lanes + by.lane] = p;
#pragma unroll
          for (int i = 0; i < V; ++i) acc[0][c][i] *= a;
        }
      }
      if (!writes) continue;
      write(to[0] + offset[c], acc[0][c]);
      if constexpr (kSums == 2)
        if (in_slot || reverse) write(to[1] + offset[c], acc[1][c]);
    }
  }
  if constexpr (pass == DotPass::targets) {
    if (in_slot || args.grad_scale == nullptr) return;
    if constexpr (split) product[0][lane] = lane_through;
    __syncwarp();
    if (first)
      args.grad_scale[row * heads + h] =
          T(form.factor) * (through + sum_products(by, product[0], 0, pairs.head));
  }
}

// Launches the pass; what it leaves in slots is for the caller to add.
template <class T, int V, int C, bool split, DotPass pass>
void launch_dot(const GatGraph& graph, const DotForm& form, const DotArgs<T>& args) {
  const bool reverse = pass == DotPass::sources;
  const Csr csr{reverse ? graph.sources : graph.targets, graph.edges, nullptr};
  const GatLayout layout(form.heads, form.features, V, C);
  const std::int64_t warps = csr.works() * layout.groups;
  launch(dot_kernel<T, V, C, split, pass>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph,
         form, layout, args, warps);
}

// Where <own[1], far[1]> is of gradients, of which heads may share one row.
template <class T>
DotRows<T> cotangent_rows(const DotForm& form, const T* grad_out) {
  const std::int64_t width = form.heads * form.features;
  return form.mean_heads ? DotRows<T>{grad_out, form.features, static_cast<int>(form.features)}
                         : DotRows<T>{grad_out, width, 0};
}

}  // namespace lipgrad::cuda
