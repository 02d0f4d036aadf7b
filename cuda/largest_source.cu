#include <lipgrad/graph/kernels/largest_source.h>

#include "column_sums.cuh"
#include "gat.cuh"
#include "reduce.cuh"

namespace lipgrad::cuda {
namespace {

constexpr std::int32_t kNone = 0x7fffffff;

// The largest value, and the lowest source that has it.
template <class T>
struct Largest {
  T top;
  std::int32_t best;

  __device__ void take(T value, std::int32_t source) {
    if (value > top) {
      top = value;
      best = source;
    } else if (value == top && source < best) {
      best = source;
    }
  }
};

template <class T>
__device__ void write_largest(std::int64_t i, std::int64_t h, std::int64_t heads, bool centre,
                              const Largest<T>& found, std::int32_t first, const T* value, T* out,
                              std::int32_t* argmax) {
  // With NaN among the values none may equal the largest: then the first edge's.
  argmax[i * heads + h] = found.best == kNone ? first : found.best;
  out[i * heads + h] = found.top + (centre ? value[i * heads + h] : T(0));
}

// value(sources, H) -> out, argmax(targets, H); slots (2 pieces, H). 32 heads a warp.
template <class T>
__global__ void __launch_bounds__(kGatThreads)
    largest_kernel(GatGraph graph, int heads, bool loops, bool centre, const T* value, T* out,
                   std::int32_t* argmax, T* slot_top, std::int32_t* slot_best, int groups,
                   std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const RowWork work = row_work({graph.targets, graph.edges, graph.offsets}, warp / groups);
  if (work.row < 0) return;
  const int h0 = static_cast<int>(warp % groups) * kWarp;
  const HeadLanes pairs(heads - h0 < kWarp ? heads - h0 : kWarp);
  const int h = h0 + pairs.head;
  const std::int64_t begin = graph.offsets[work.row];
  const bool any = loops || work.to > work.from;
  const std::int32_t first =
      loops ? static_cast<std::int32_t>(work.row) : (any ? graph.source[begin] : -1);
  Largest<T> found{T(0), kNone};
  if (any) {
    found.top = value[std::int64_t{first} * heads + h];
    if (loops) found.take(found.top, first);
    for (std::int64_t e = work.from + pairs.edge; e < work.to; e += pairs.edges) {
      const std::int32_t j = graph.source[e];
      found.take(value[std::int64_t{j} * heads + h], j);
    }
  }
  for (int step = pairs.stride; step < kWarp; step *= 2) {
    const T top = __shfl_xor_sync(kAllLanes, found.top, step);
    const std::int32_t best = __shfl_xor_sync(kAllLanes, found.best, step);
    found.take(top, best);
  }
  if (!pairs.used || pairs.edge != 0) return;
  if (work.slot < 0) {
    write_largest(work.row, h, heads, centre && any, found, first, value, out, argmax);
  } else {
    slot_top[work.slot * heads + h] = found.top;
    slot_best[work.slot * heads + h] = found.best;
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    largest_hubs_kernel(GatGraph graph, int heads, bool loops, bool centre, const T* slot_top,
                        const std::int32_t* slot_best, const T* value, T* out,
                        std::int32_t* argmax) {
  const Hub hub = hub_of({graph.targets, graph.edges, graph.offsets}, blockIdx.x);
  if (hub.row < 0) return;
  const std::int32_t first =
      loops ? static_cast<std::int32_t>(hub.row) : graph.source[graph.offsets[hub.row]];
  for (int h = static_cast<int>(threadIdx.x); h < heads; h += kGatThreads) {
    Largest<T> found{slot_top[hub.first * heads + h], slot_best[hub.first * heads + h]};
    for (std::int64_t p = 1; p < hub.parts; ++p) {
      const std::int64_t at = hub.slot(p) * heads + h;
      found.take(slot_top[at], slot_best[at]);
    }
    write_largest(hub.row, h, heads, centre, found, first, value, out, argmax);
  }
}

// grad_value of a (source, head) from what the targets whose largest it is give.
template <class T>
__device__ void write_grad(std::int64_t j, std::int64_t h, std::int64_t heads, bool centre, T sum,
                           std::int64_t stride, const T* grad, const T* factor, T* grad_value) {
  if (centre) sum += grad[j * stride + h];
  grad_value[j * heads + h] = factor != nullptr ? sum * factor[h] : sum;
}

// argmax(targets, H), grad(targets, H), rows `stride` apart -> grad_value(sources, H); slots (2
// pieces, H).
template <class T>
__global__ void __launch_bounds__(kGatThreads, 4)
    backward_kernel(GatGraph graph, int heads, bool loops, bool centre, const std::int32_t* argmax,
                    std::int64_t stride, const T* grad, const T* factor, T* grad_value, T* slots,
                    int groups, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const RowWork work = row_work({graph.sources, graph.edges, graph.reverse_offsets}, warp / groups);
  if (work.row < 0) return;
  const std::int64_t j = work.row, begin = graph.reverse_offsets[j];
  const int h0 = static_cast<int>(warp % groups) * kWarp;
  const HeadLanes pairs(heads - h0 < kWarp ? heads - h0 : kWarp);
  const int h = h0 + pairs.head;
  const bool looped = loops && j < graph.targets;
  const auto given = [&](std::int64_t i) {
    return argmax[i * heads + h] == j ? grad[i * stride + h] : T(0);
  };
  T sum = 0;
  for (std::int64_t p = work.from + pairs.edge; p < work.to; p += pairs.edges) {
    const std::int64_t i = graph.reverse_target[p];
    // Edges that occur twice have one maximum; the loop counts once.
    const bool again = p > begin && graph.reverse_target[p - 1] == i;
    if (!again && !(looped && i == j)) sum += given(i);
  }
  sum = pairs.reduce(sum, Sum());
  if (looped && work.last) sum += given(j);
  if (!pairs.used || pairs.edge != 0) return;
  if (work.slot < 0) {
    write_grad(j, h, heads, centre && j < graph.targets, sum, stride, grad, factor, grad_value);
  } else {
    slots[work.slot * heads + h] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    backward_hubs_kernel(GatGraph graph, int heads, bool centre, std::int64_t stride, const T* grad,
                         const T* factor, const T* slots, T* grad_value) {
  const Hub hub = hub_of({graph.sources, graph.edges, graph.reverse_offsets}, blockIdx.x);
  if (hub.row < 0) return;
  for (std::int64_t c = 0; c < heads; c += kWarp) {
    const double sum = hub_sum(hub, slots, heads, c, heads);
    if (threadIdx.x < kWarp && c + threadIdx.x < heads)
      write_grad(hub.row, c + threadIdx.x, heads, centre && hub.row < graph.targets, T(sum), stride,
                 grad, factor, grad_value);
  }
}

// One part of the sources a warp, 32 heads at a time: value(sources, H) -> part_top, part_best
// (parts, H).
template <class T>
__global__ void __launch_bounds__(kGatThreads)
    parts_kernel(std::int64_t sources, std::int64_t length, int heads, const T* value, T* part_top,
                 std::int32_t* part_best, int groups, std::int64_t warps) {
  const std::int64_t warp = thread_index() / kWarp;
  if (warp >= warps) return;
  const std::int64_t part = warp / groups, first = part * length;
  const std::int64_t end = first + length < sources ? first + length : sources;
  const int h0 = static_cast<int>(warp % groups) * kWarp;
  const HeadLanes pairs(heads - h0 < kWarp ? heads - h0 : kWarp);
  const int h = h0 + pairs.head;
  Largest<T> found{value[first * heads + h], static_cast<std::int32_t>(first)};
#pragma unroll 4
  for (std::int64_t j = first + pairs.edge; j < end; j += pairs.edges)
    found.take(value[j * heads + h], static_cast<std::int32_t>(j));
  for (int step = pairs.stride; step < kWarp; step *= 2) {
    const T top = __shfl_xor_sync(kAllLanes, found.top, step);
    const std::int32_t best = __shfl_xor_sync(kAllLanes, found.best, step);
    found.take(top, best);
  }
  if (!pairs.used || pairs.edge != 0) return;
  part_top[part * heads + h] = found.top;
  part_best[part * heads + h] = found.best;
}

// The largest of all parts -> top, best (H). One warp a head.
template <class T>
__global__ void __launch_bounds__(kWarp)
    whole_kernel(std::int64_t parts, int heads, const T* part_top, const std::int32_t* part_best,
                 T* top, std::int32_t* best) {
  const int h = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  Largest<T> found{part_top[h], part_best[h]};
  for (std::int64_t p = lane; p < parts; p += kWarp)
    found.take(part_top[p * heads + h], part_best[p * heads + h]);
  for (int step = 1; step < kWarp; step *= 2) {
    const T other = __shfl_xor_sync(kAllLanes, found.top, step);
    const std::int32_t other_best = __shfl_xor_sync(kAllLanes, found.best, step);
    found.take(other, other_best);
  }
  if (lane != 0) return;
  top[h] = found.top;
  best[h] = found.best;
}

template <class T>
__global__ void spread_kernel(std::int64_t n, std::int64_t heads, bool centre, const T* top,
                              const T* value, T* out) {
  const std::int64_t i = thread_index();
  if (i < n) out[i] = top[i % heads] + (centre ? value[i] : T(0));
}

// A row of `grad` for column_sums_of.
template <class T>
struct GradRows {
  const T* grad;
  std::int64_t stride;

  __device__ double operator()(std::int64_t i, std::int64_t h) const {
    return double(grad[i * stride + h]);
  }
};

template <class T>
__global__ void global_backward_kernel(std::int64_t n, std::int64_t targets, std::int64_t heads,
                                       bool centre, const std::int32_t* argmax, const double* sums,
                                       std::int64_t stride, const T* grad, const T* factor,
                                       T* grad_value) {
  const std::int64_t at = thread_index();
  if (at >= n) return;
  const std::int64_t j = at / heads, h = at % heads;
  write_grad(j, h, heads, centre && j < targets, argmax[h] == j ? T(sums[h]) : T(0), stride, grad,
             factor, grad_value);
}

}  // namespace

template <class T>
void largest_source(const GatGraph& graph, bool self_loops, bool global, bool centre,
                    std::int64_t head_count, const T* value, T* top, std::int32_t* argmax) {
  const int heads = static_cast<int>(head_count), groups = (heads + kWarp - 1) / kWarp;
  if (global) {
    if (graph.sources == 0) return;
    const std::int64_t n = graph.targets * heads;
    std::int64_t length = (graph.sources + 1023) / 1024;
    if (length < 256) length = 256;
    const std::int64_t parts = (graph.sources + length - 1) / length, warps = parts * groups;
    const Scratch<T> part_top(parts * heads), all(heads);
    const Scratch<std::int32_t> part_best(parts * heads);
    launch(parts_kernel<T>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph.sources, length,
           heads, value, part_top.get(), part_best.get(), groups, warps);
    launch(whole_kernel<T>, static_cast<unsigned>(heads), kWarp, 0, parts, heads, part_top.get(),
           part_best.get(), all.get(), argmax);
    launch(spread_kernel<T>, blocks_for(n, 256), 256, 0, n, head_count, centre, all.get(), value,
           top);
    return;
  }
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const std::int64_t pieces = csr.pieces(), warps = csr.works() * groups;
  const Scratch<T> slot_top(2 * pieces * heads);
  const Scratch<std::int32_t> slot_best(2 * pieces * heads);
  launch(largest_kernel<T>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, heads, self_loops,
         centre, value, top, argmax, slot_top.get(), slot_best.get(), groups, warps);
  launch(largest_hubs_kernel<T>, blocks_for(pieces, 1), kGatThreads, 0, graph, heads, self_loops,
         centre, slot_top.get(), slot_best.get(), value, top, argmax);
}

template <class T>
void largest_source_backward(const GatGraph& graph, bool self_loops, bool global, bool centre,
                             std::int64_t head_count, const std::int32_t* argmax,
                             std::int64_t stride, const T* grad, const T* factor, T* grad_value) {
  const int heads = static_cast<int>(head_count), groups = (heads + kWarp - 1) / kWarp;
  if (global) {
    const std::int64_t n = graph.sources * heads;
    const Scratch<double> sums(heads);
    column_sums_of(graph.targets, heads, GradRows<T>{grad, stride}, sums.get());
    launch(global_backward_kernel<T>, blocks_for(n, 256), 256, 0, n, graph.targets, head_count,
           centre, argmax, sums.get(), stride, grad, factor, grad_value);
    return;
  }
  const Csr csr{graph.sources, graph.edges, graph.reverse_offsets};
  const std::int64_t pieces = csr.pieces(), warps = csr.works() * groups;
  const Scratch<T> slots(2 * pieces * heads);
  launch(backward_kernel<T>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, heads, self_loops,
         centre, argmax, stride, grad, factor, grad_value, slots.get(), groups, warps);
  launch(backward_hubs_kernel<T>, blocks_for(pieces, 1), kGatThreads, 0, graph, heads, centre,
         stride, grad, factor, slots.get(), grad_value);
}

template void largest_source(const GatGraph&, bool, bool, bool, std::int64_t, const float*, float*,
                             std::int32_t*);
template void largest_source(const GatGraph&, bool, bool, bool, std::int64_t, const double*,
                             double*, std::int32_t*);
template void largest_source_backward(const GatGraph&, bool, bool, bool, std::int64_t,
                                      const std::int32_t*, std::int64_t, const float*, const float*,
                                      float*);
template void largest_source_backward(const GatGraph&, bool, bool, bool, std::int64_t,
                                      const std::int32_t*, std::int64_t, const double*,
                                      const double*, double*);

}  // namespace lipgrad::cuda
