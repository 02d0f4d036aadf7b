#pragma once

// C++17, private to the losses: rows of (N, C) arrays, each shared by some threads, and how often a
// list of rows names each.

#include "reduce.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {

inline constexpr int kLossThreads = 128;

// A row is shared by `width` threads: a part of a warp, or a block of its own.
template <int width>
struct LossRows {
  static constexpr int per_block = kLossThreads / width;

  std::int64_t row;
  int lane;
  __device__ LossRows()
      : row(static_cast<std::int64_t>(blockIdx.x) * per_block +
            static_cast<int>(threadIdx.x) / width),
        lane(static_cast<int>(threadIdx.x) % width) {}

  // In every thread of the row; all threads of the block call it.
  template <class V, class Op>
  static __device__ V reduce(V value, Op op, V identity) {
    if constexpr (width > kWarp) {
      return block_reduce<kLossThreads>(value, op, identity);
    } else {
      return warp_reduce<width>(value, op);
    }
  }
};

// Calls run with the width for rows of n elements, as a type.
template <int width>
struct Width {
  static constexpr int value = width;
};
template <class Run>
void visit_width(std::int64_t n, Run run) {
  if (n <= 32) return run(Width<4>());
  if (n <= 256) return run(Width<16>());
  run(Width<kLossThreads>());
}

// Whether the rows of these arrays can be read in packs.
template <class T>
bool in_packs(std::int64_t cols, const T* x, const T* y = nullptr, const T* z = nullptr) {
  return aligned(x, y, z) && cols % Pack<T>::size == 0;
}

// times(total): how often each row is chosen; last(total), unless null: the last place where it is.
// Both hold zeros before.
__global__ static void times_kernel(std::int64_t total, std::int64_t count,
                                    const std::int64_t* rows, unsigned* times,
                                    unsigned long long* last) {
  const std::int64_t i = thread_index();
  if (i >= count) return;
  const std::int64_t r = rows[i];
  if (r < 0 || r >= total) return;
  atomicAdd(times + r, 1u);
  if (last) atomicMax(last + r, static_cast<unsigned long long>(i));
}

}  // namespace lipgrad::cuda
