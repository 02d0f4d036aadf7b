#include "column_sums.cuh"
#include "gat.cuh"
#include "reduce.cuh"

namespace lipgrad::cuda {
namespace {

constexpr std::int32_t kNone = 0x7fffffff;

// The largest square, and the lowest source that has it.
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

// factor(H) = (kappa |a|)^2, in double; one block.
template <class T>
__global__ void __launch_bounds__(256)
    factor_kernel(int heads, std::int64_t features, bool joint, double kappa, const T* a_src,
                  const T* a_dst, T* factor) {
  const auto squares = [&](std::int64_t c) {
    return double(a_src[c]) * double(a_src[c]) + double(a_dst[c]) * double(a_dst[c]);
  };
  double sum = 0;
  if (joint) {
    for (std::int64_t c = threadIdx.x; c < heads * features; c += 256) sum += squares(c);
    sum = block_reduce<256>(sum, Sum(), 0.0);
    for (int h = threadIdx.x; h < heads; h += 256) factor[h] = T(kappa * kappa * sum);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int h = static_cast<int>(threadIdx.x) / kWarp; h < heads; h += 256 / kWarp) {
    sum = 0;
    for (std::int64_t c = lane; c < features; c += kWarp) sum += squares(h * features + c);
    sum = warp_reduce(sum, Sum());
    if (lane == 0) factor[h] = T(kappa * kappa * sum);
  }
}

template <class T>
__global__ void scale_kernel(std::int64_t n, std::int64_t heads, const T* factor, T* squares) {
  const std::int64_t i = thread_index();
  if (i < n) squares[i] *= factor[i % heads];
}

template <class T>
__device__ void write_largest(std::int64_t i, std::int64_t h, std::int64_t heads, bool centre,
                              const Largest<T>& found, std::int32_t first, const T* squares,
                              T* target, std::int32_t* argmax) {
  // With NaN among the squares none may equal the largest: then the first edge's.
  argmax[i * heads + h] = found.best == kNone ? first : found.best;
  target[i * heads + h] = found.top + (centre ? squares[i * heads + h] : T(0));
}

// squares(sources, H) -> target, argmax(targets, H); slots (2 pieces, H). 32 heads a warp.
template <class T>
__global__ void __launch_bounds__(kGatThreads)
    largest_kernel(GatGraph graph, int heads, bool loops, bool centre, const T* squares, T* target,
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
    found.top = squares[std::int64_t{first} * heads + h];
    if (loops) found.take(found.top, first);
    for (std::int64_t e = work.from + pairs.edge; e < work.to; e += pairs.edges) {
      const std::int32_t j = graph.source[e];
      found.take(squares[std::int64_t{j} * heads + h], j);
    }
  }
  for (int step = pairs.stride; step < kWarp; step *= 2) {
    const T top = __shfl_xor_sync(kAllLanes, found.top, step);
    const std::int32_t best = __shfl_xor_sync(kAllLanes, found.best, step);
    found.take(top, best);
  }
  if (!pairs.used || pairs.edge != 0) return;
  if (work.slot < 0) {
    write_largest(work.row, h, heads, centre && any, found, first, squares, target, argmax);
  } else {
    slot_top[work.slot * heads + h] = found.top;
    slot_best[work.slot * heads + h] = found.best;
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    largest_hubs_kernel(GatGraph graph, int heads, bool loops, bool centre, const T* slot_top,
                        const std::int32_t* slot_best, const T* squares, T* target,
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
    write_largest(hub.row, h, heads, centre, found, first, squares, target, argmax);
  }
}

// z_factor of a (source, head) from what the targets whose largest it is give.
template <class T>
__device__ void write_z_factor(std::int64_t j, std::int64_t h, std::int64_t heads, bool centre,
                               T sum, const T* factor, const T* grad_norm, T* z_factor) {
  if (centre) sum += grad_norm[j * 2 * heads + h];
  z_factor[j * heads + h] = sum * factor[h];
}

// argmax(targets, H), grad_norm(targets, 2, H) -> z_factor(sources, H); slots (2 pieces, H).
template <class T>
__global__ void __launch_bounds__(kGatThreads, 4)
    z_factor_kernel(GatGraph graph, int heads, bool loops, bool centre, const std::int32_t* argmax,
                    const T* factor, const T* grad_norm, T* z_factor, T* slots, int groups,
                    std::int64_t warps) {
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
    return argmax[i * heads + h] == j ? grad_norm[i * 2 * heads + h] : T(0);
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
    write_z_factor(j, h, heads, centre && j < graph.targets, sum, factor, grad_norm, z_factor);
  } else {
    slots[work.slot * heads + h] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    z_factor_hubs_kernel(GatGraph graph, int heads, bool centre, const T* factor,
                         const T* grad_norm, const T* slots, T* z_factor) {
  const Hub hub = hub_of({graph.sources, graph.edges, graph.reverse_offsets}, blockIdx.x);
  if (hub.row < 0) return;
  for (std::int64_t c = 0; c < heads; c += kWarp) {
    const double sum = hub_sum(hub, slots, heads, c, heads);
    if (threadIdx.x < kWarp && c + threadIdx.x < heads)
      write_z_factor(hub.row, c + threadIdx.x, heads, centre && hub.row < graph.targets, T(sum),
                     factor, grad_norm, z_factor);
  }
}

// What the norm of a gets: the second row of every target's gradients.
template <class T>
struct RootGradients {
  const T* grad_norm;
  std::int64_t heads;

  __device__ double operator()(std::int64_t i, std::int64_t h) const {
    return double(grad_norm[(2 * i + 1) * heads + h]);
  }
};

template <class T>
__global__ void __launch_bounds__(256)
    a_factor_kernel(int heads, bool joint, double kappa, const T* factor, const double* sums,
                    T* a_factor) {
  double all = 0;
  if (joint) {
    for (int h = static_cast<int>(threadIdx.x); h < heads; h += 256) all += sums[h];
    all = block_reduce<256>(all, Sum(), 0.0);
  }
  for (int h = static_cast<int>(threadIdx.x); h < heads; h += 256) {
    const double square = double(factor[h]) / (kappa * kappa);
    a_factor[h] = square > 0 ? T((joint ? all : sums[h]) / square) : T(0);
  }
}

}  // namespace

template <class T>
void gat_norm(const GatGraph& graph, const GatForm& form, const GatNormForm& norm, const T* a_src,
              const T* a_dst, T* squares, T* target, std::int32_t* argmax, T* factor) {
  const int heads = static_cast<int>(form.heads), groups = (heads + kWarp - 1) / kWarp;
  const std::int64_t n = graph.sources * heads;
  launch(factor_kernel<T>, 1, 256, 0, heads, form.features, norm.joint, norm.kappa, a_src, a_dst,
         factor);
  launch(scale_kernel<T>, blocks_for(n, 256), 256, 0, n, form.heads, factor, squares);
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const std::int64_t pieces = csr.pieces(), warps = csr.works() * groups;
  const Scratch<T> top(2 * pieces * heads);
  const Scratch<std::int32_t> best(2 * pieces * heads);
  launch(largest_kernel<T>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, heads,
         form.self_loops, norm.centre, squares, target, argmax, top.get(), best.get(), groups,
         warps);
  launch(largest_hubs_kernel<T>, blocks_for(pieces, 1), kGatThreads, 0, graph, heads,
         form.self_loops, norm.centre, top.get(), best.get(), squares, target, argmax);
}

template <class T>
void gat_norm_backward(const GatGraph& graph, const GatForm& form, const GatNormForm& norm,
                       const std::int32_t* argmax, const T* factor, const T* grad_norm, T* z_factor,
                       T* a_factor) {
  const int heads = static_cast<int>(form.heads), groups = (heads + kWarp - 1) / kWarp;
  const Csr csr{graph.sources, graph.edges, graph.reverse_offsets};
  const std::int64_t pieces = csr.pieces(), warps = csr.works() * groups;
  const Scratch<T> slots(2 * pieces * heads);
  launch(z_factor_kernel<T>, blocks_for(warps, kRowWarps), kGatThreads, 0, graph, heads,
         form.self_loops, norm.centre, argmax, factor, grad_norm, z_factor, slots.get(), groups,
         warps);
  launch(z_factor_hubs_kernel<T>, blocks_for(pieces, 1), kGatThreads, 0, graph, heads, norm.centre,
         factor, grad_norm, slots.get(), z_factor);
  const Scratch<double> sums(heads);
  column_sums_of(graph.targets, heads, RootGradients<T>{grad_norm, heads}, sums.get());
  launch(a_factor_kernel<T>, 1, 256, 0, heads, norm.joint, norm.kappa, factor, sums.get(),
         a_factor);
}

template void gat_norm(const GatGraph&, const GatForm&, const GatNormForm&, const float*,
                       const float*, float*, float*, std::int32_t*, float*);
template void gat_norm(const GatGraph&, const GatForm&, const GatNormForm&, const double*,
                       const double*, double*, double*, std::int32_t*, double*);
template void gat_norm_backward(const GatGraph&, const GatForm&, const GatNormForm&,
                                const std::int32_t*, const float*, const float*, float*, float*);
template void gat_norm_backward(const GatGraph&, const GatForm&, const GatNormForm&,
                                const std::int32_t*, const double*, const double*, double*,
                                double*);

}  // namespace lipgrad::cuda
