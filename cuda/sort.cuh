#pragma once

// C++17, private to cuda/. A stable sort of positions by row, on the device and without reading
// anything back: radix sort by 8 bits a pass. W is std::uint32_t or std::uint64_t.

#include "reduce.cuh"

namespace lipgrad::cuda {

namespace sort {

inline constexpr int kThreads = 256, kWarps = kThreads / kWarp;
inline constexpr int kRounds = 8;                 // keys of a thread
inline constexpr int kTile = kThreads * kRounds;  // keys of a block
inline constexpr int kDigits = 256;               // as many as threads: one each
inline constexpr int kScanned = kThreads * 4;     // numbers of a block of the scan
inline constexpr int kDigitBits = 8;

// x(n): exclusive prefix sums within each block of kScanned; sums, if not null, gets their totals.
template <class W>
__global__ void scan_kernel(std::int64_t n, W* x, W* sums) {
  LIPGRAD_SHARED(W, total, [kWarps]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kScanned + thread * 4;
  W value[4], own = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    value[k] = at + k < n ? x[at + k] : W(0);
    own += value[k];
  }
  W inclusive = own;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const W before = __shfl_up_sync(kAllLanes, inclusive, static_cast<unsigned>(step));
    if (lane >= step) inclusive += before;
  }
  if (lane == kWarp - 1) total[warp] = inclusive;
  __syncthreads();
  W running = inclusive - own;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    if (w < warp) running += total[w];
  if (sums && thread == kThreads - 1) sums[blockIdx.x] = running + own;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (at + k < n) x[at + k] = running;
    running += value[k];
  }
}

template <class W>
__global__ void add_kernel(std::int64_t n, W* x, const W* sums) {
  const W sum = sums[blockIdx.x];
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * kScanned;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const std::int64_t at = base + k * kThreads + static_cast<int>(threadIdx.x);
    if (at < n) x[at] += sum;
  }
}

// x[i] becomes the sum of those before it.
template <class W>
void exclusive_scan(std::int64_t n, W* x) {
  const std::int64_t blocks = (n + kScanned - 1) / kScanned;
  if (blocks <= 1) {
    launch(scan_kernel<W>, static_cast<unsigned>(blocks), kThreads, 0, n, x,
           static_cast<W*>(nullptr));
    return;
  }
  const Scratch<W> sums(blocks);
  launch(scan_kernel<W>, blocks_for(n, kScanned), kThreads, 0, n, x, sums.get());
  exclusive_scan(blocks, sums.get());
  launch(add_kernel<W>, blocks_for(n, kScanned), kThreads, 0, n, x,
         static_cast<const W*>(sums.get()));
}

// counts(digits, tiles): how often each digit occurs among the keys of each tile.
template <class W>
__global__ void count_kernel(std::int64_t n, int shift, const W* keys, W* counts) {
  LIPGRAD_SHARED(unsigned, histogram, [kDigits]);
  const int thread = static_cast<int>(threadIdx.x);
  histogram[thread] = 0;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTile + k * kThreads + thread;
    if (i < n) atomicAdd(&histogram[static_cast<int>(keys[i] >> shift & (kDigits - 1))], 1u);
  }
  __syncthreads();
  counts[thread * static_cast<std::int64_t>(gridDim.x) + blockIdx.x] = histogram[thread];
}

// Moves keys and positions to where `starts`, the scanned counts, put them. Equal digits keep their
// order: a warp owns neighbouring keys, and lanes of a round know how many before them are alike.
template <class W>
__global__ void move_kernel(std::int64_t n, int shift, const W* keys, const W* positions,
                            const W* starts, W* keys_out, W* positions_out) {
  LIPGRAD_SHARED(unsigned, place, [kWarps][kDigits]);
  LIPGRAD_SHARED(W, start, [kDigits]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) place[w][thread] = 0;
  __syncthreads();
  const std::int64_t base =
      static_cast<std::int64_t>(blockIdx.x) * kTile + warp * (kRounds * kWarp) + lane;
  W key[kRounds];
  unsigned rank[kRounds];
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const bool valid = base + k * kWarp < n;
    key[k] = valid ? keys[base + k * kWarp] : W(0);
    const int digit = static_cast<int>(key[k] >> shift & (kDigits - 1));
    const unsigned alike = __match_any_sync(kAllLanes, valid ? digit : kDigits);
    const unsigned before = alike & ((1u << lane) - 1);
    const unsigned earlier = place[warp][digit];
    __syncwarp();
    if (valid && before == 0) place[warp][digit] = earlier + __popc(alike);
    __syncwarp();
    rank[k] = earlier + __popc(before);
  }
  __syncthreads();
  unsigned running = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const unsigned count = place[w][thread];
    place[w][thread] = running;
    running += count;
  }
  start[thread] = starts[thread * static_cast<std::int64_t>(gridDim.x) + blockIdx.x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    if (base + k * kWarp >= n) continue;
    const int digit = static_cast<int>(key[k] >> shift & (kDigits - 1));
    const W to = start[digit] + place[warp][digit] + rank[k];
    keys_out[to] = key[k];
    positions_out[to] = positions[base + k * kWarp];
  }
}

}  // namespace sort

// n keys up to and with `largest`, and their positions, in rising order of the keys, equal keys in
// the order they had. The spare arrays are as large; a pointer of each pair is swapped until the
// result is in `keys` and `positions`.
template <class W>
void sort_by_key(std::int64_t n, W largest, W*& keys, W*& positions, W*& spare_keys,
                 W*& spare_positions) {
  if (n == 0) return;
  const std::int64_t tiles = (n + sort::kTile - 1) / sort::kTile;
  const Scratch<W> counts(tiles * sort::kDigits);
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(W)) && largest >> shift > 0;
       shift += sort::kDigitBits) {
    launch(sort::count_kernel<W>, blocks_for(n, sort::kTile), sort::kThreads, 0, n, shift,
           static_cast<const W*>(keys), counts.get());
    sort::exclusive_scan(tiles * sort::kDigits, counts.get());
    launch(sort::move_kernel<W>, blocks_for(n, sort::kTile), sort::kThreads, 0, n, shift,
           static_cast<const W*>(keys), static_cast<const W*>(positions),
           static_cast<const W*>(counts.get()), spare_keys, spare_positions);
    W* const k = keys;
    keys = spare_keys;
    spare_keys = k;
    W* const p = positions;
    positions = spare_positions;
    spare_positions = p;
  }
}

}  // namespace lipgrad::cuda
