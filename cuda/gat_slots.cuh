#pragma once

// C++17. What the forward passes of fused graph attention do for hubs: parts of a row leave their
// sums in slots, which are put together here.

#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/ops/kernels/scalar_math.h>

#include "rows.cuh"

namespace lipgrad::cuda {

// Numbers of a slot: sums of exp(score - top) z, then top and the sum of exp(score - top) of each
// head.
LIPGRAD_HD inline std::int64_t slot_size(std::int64_t heads, std::int64_t features) {
  return (heads * features + 2 * heads + 3) / 4 * 4;
}

// exp(x - top); 1 where both are the same infinity.
template <class T>
__device__ __forceinline__ T shifted_exp(T x, T top) {
  return x == top ? T(1) : scalar::exp(x - top);
}

// (top, sum) of the edges of both: sum holds exp(score - top).
template <class T, class S>
__device__ __forceinline__ void merge_sums(T& top, S& sum, T other_top, S other_sum) {
  if (other_top > top) {
    sum = other_sum + sum * S(shifted_exp(top, other_top));
    top = other_top;
  } else {
    sum += other_sum * S(shifted_exp(other_top, top));
  }
}

// A hub's out and stats from its slots: the maximum and 1 / sum of each head stand from stats_first
// on in a row of stats.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp, sizeof(T) == 8 ? 3 : 4)
    forward_hubs_kernel(GatGraph graph, GatForm form, const T* slots, const T* bias, T* stats,
                        std::int64_t stats_row, std::int64_t stats_first, T* out) {
  struct Sums {
    T top;
    double sum, acc;
  };
  LIPGRAD_SHARED(Sums, shared, [kRowWarps][kWarp]);
  const Hub hub = hub_of({graph.targets, graph.edges, graph.offsets}, blockIdx.x);
  if (hub.row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t heads = form.heads, features = form.features, width = heads * features,
                     size = slot_size(heads, features),
                     columns = form.mean_heads ? features : width;
  const std::int64_t share = (hub.parts + kRowWarps - 1) / kRowWarps, begin = warp * share,
                     end = begin + share < hub.parts ? begin + share : hub.parts;
  for (std::int64_t c = lane; c - lane < columns; c += kWarp) {
    double total = 0;
    for (std::int64_t m = 0; m < (form.mean_heads ? heads : 1); ++m) {
      const std::int64_t at = c < columns ? m * features + c : 0, h = at / features;
      Sums mine{T(-INFINITY), 0, 0};
      const auto add = [&](const Sums& other) {
        const T top = mine.top;
        merge_sums(mine.top, mine.sum, other.top, other.sum);
        T unused = top;
        merge_sums(unused, mine.acc, other.top, other.acc);
      };
      for (std::int64_t p = begin; p < end; ++p) {
        const T* slot = slots + hub.slot(p) * size;
        add({slot[width + h], double(slot[width + heads + h]), double(slot[at])});
      }
      __syncthreads();  // the last round may still read `shared`
      shared[warp][lane] = mine;
      __syncthreads();
      mine = shared[0][lane];
      for (int w = 1; w < kRowWarps; ++w) add(shared[w][lane]);
      if (warp == 0 && c < columns && at % features == 0) {
        stats[hub.row * stats_row + stats_first + h] = mine.top;
        stats[hub.row * stats_row + stats_first + heads + h] = T(1 / mine.sum);
      }
      total += mine.acc / mine.sum;
    }
    if (form.mean_heads) total /= double(heads);
    if (warp == 0 && c < columns)
      out[hub.row * columns + c] = T(total) + (bias != nullptr ? bias[c] : T(0));
  }
}

}  // namespace lipgrad::cuda
