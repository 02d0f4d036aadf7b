#pragma once

// C++17. How the rows of a CSR structure are shared out over warps. Rows of at most kPieceEdges
// edges are one warp's work each. Longer ones ("hubs") are cut where the flat edges are: piece p is
// the edges [p kPieceEdges, (p + 1) kPieceEdges) of all rows. At most two hubs reach into a piece:
// the row of its first edge, whose part is slot 2p, and the row of its last edge, whose part is
// slot 2p + 1. The warps of slots follow those of rows in the same grid, write what they find to
// scratch memory, and a second kernel adds a hub's slots in order. The host need not know where the
// hubs are; without kPieceEdges edges there is neither a slot nor a second kernel.

#include "launch.h"

namespace lipgrad::cuda {

inline constexpr std::int64_t kPieceEdges = 256;
inline constexpr int kRowWarps = 4;  // of a block that works on rows

struct Csr {
  std::int64_t rows, edges;
  const std::int64_t* offsets;

  // Pieces that a hub may reach into.
  LIPGRAD_HD std::int64_t pieces() const {
    return edges > kPieceEdges ? (edges + kPieceEdges - 1) / kPieceEdges : 0;
  }
  // Rows, then slots.
  LIPGRAD_HD std::int64_t works() const { return rows + 2 * pieces(); }
};

// The edges [from, to) of a row, or of a part of one. slot: -1 for a whole row. No work: row < 0.
struct RowWork {
  std::int64_t row, from, to, slot;
  bool last;  // the row's end is among them

  __device__ int count() const { return static_cast<int>(to - from); }
};

// A row of more than kPieceEdges edges; none: row < 0.
struct Hub {
  std::int64_t row, first, parts;

  __device__ std::int64_t slot(std::int64_t part) const {
    return part == 0 ? first : (first / 2 + part) * 2;
  }
};

// The row of an edge. The whole warp calls it.
__device__ inline std::int64_t row_of(const Csr& csr, std::int64_t edge) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int64_t low = 0, high = csr.rows;  // offsets[low] <= edge < offsets[high]
  while (high - low > 1) {
    const std::int64_t step = (high - low + kWarp) / (kWarp + 1), at = low + (lane + 1) * step;
    const bool below = at < high && csr.offsets[at] <= edge;
    const int steps = __popc(__ballot_sync(kAllLanes, below));
    low += steps * step;
    high = low + step < high ? low + step : high;
  }
  return low;
}

// Work number `work` of csr.works(). The whole warp calls it.
__device__ inline RowWork row_work(const Csr& csr, std::int64_t work) {
  if (work < csr.rows) {
    const std::int64_t from = csr.offsets[work], to = csr.offsets[work + 1];
    return {to - from > kPieceEdges ? -1 : work, from, to, -1, true};
  }
  const std::int64_t slot = work - csr.rows, first = slot / 2 * kPieceEdges;
  const std::int64_t stop = first + kPieceEdges < csr.edges ? first + kPieceEdges : csr.edges;
  const bool second = slot % 2 != 0;
  const std::int64_t row = row_of(csr, second ? stop - 1 : first);
  const std::int64_t begin = csr.offsets[row], end = csr.offsets[row + 1];
  const bool work_here = end - begin > kPieceEdges && (begin > first) == second;
  return {work_here ? row : -1, begin > first ? begin : first, end < stop ? end : stop, slot,
          end <= stop};
}

// The hub that starts in a piece. The whole warp calls it.
__device__ inline Hub hub_of(const Csr& csr, std::int64_t piece) {
  const std::int64_t first = piece * kPieceEdges;
  const std::int64_t stop = first + kPieceEdges < csr.edges ? first + kPieceEdges : csr.edges;
  const std::int64_t row = row_of(csr, stop - 1);
  const std::int64_t begin = csr.offsets[row], end = csr.offsets[row + 1];
  if (begin < first || end - begin <= kPieceEdges) return {-1, 0, 0};
  return {row, 2 * piece + (begin > first ? 1 : 0), (end - 1) / kPieceEdges - piece + 1};
}

// For number `column` + lane of every slot (of n, `stride` apart): the sum over a hub's slots. All
// threads of a block of kRowWarps warps call it and get it.
template <class T>
__device__ double hub_sum(const Hub& hub, const T* slots, std::int64_t stride, std::int64_t column,
                          std::int64_t n) {
  LIPGRAD_SHARED(double, part, [kRowWarps][kWarp]);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t share = (hub.parts + kRowWarps - 1) / kRowWarps, begin = warp * share;
  const std::int64_t end = begin + share < hub.parts ? begin + share : hub.parts;
  double sum = 0;
  if (column + lane < n)
#pragma unroll 4
    for (std::int64_t p = begin; p < end; ++p)
      sum += static_cast<double>(slots[hub.slot(p) * stride + column + lane]);
  __syncthreads();  // an earlier call may still read `part`
  part[warp][lane] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int w = 0; w < kRowWarps; ++w) sum += part[w][lane];
  return sum;
}

// V neighbouring elements: one access of 16 bytes, or V = 1.
template <int V, class T>
__device__ __forceinline__ void read(const T* from, T (&x)[V]) {
  if constexpr (V == 1) {
    x[0] = *from;
  } else {
    static_assert(V == 4 && sizeof(T) == 4, "float4");
    const float4 four = *reinterpret_cast<const float4*>(from);
    x[0] = four.x;
    x[1] = four.y;
    x[2] = four.z;
    x[3] = four.w;
  }
}
template <int V, class T>
__device__ __forceinline__ void write(T* to, const T (&x)[V]) {
  if constexpr (V == 1) {
    *to = x[0];
  } else {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  }
}

// For the host: whether float4 reads each pointer and whole rows of `width` floats. Null may be.
template <class... P>
bool fits_float4(std::int64_t width, const P*... p) {
  return width % 4 == 0 &&
         ((sizeof(P) == 4 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0) && ...);
}

// The smallest power of two >= n; n from 1 to kWarp.
LIPGRAD_HD inline int power_of_two(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

}  // namespace lipgrad::cuda
