#pragma once

// C++17, private to cuda/. What the passes of dense attention share: tiles of scores of one window
// and head, as products of rows that go through shared memory piece by piece.

#include <lipgrad/ops/kernels/dropout.h>
#include <lipgrad/ops/kernels/scalar_math.h>
#include <lipgrad/vision/kernels/dense_attention.h>

#include "reduce.cuh"

namespace lipgrad::cuda {

inline constexpr int kDenseThreads = 256;  // 16 x 16
inline constexpr int kDenseDepth = 16;     // features, or tokens, of a piece
inline constexpr int kDenseSlab = 64;      // columns of results that a block has; 4 a thread
inline constexpr int kDenseColumns = kDenseSlab / 16;

// Queries and keys of a tile, and rows that a thread has of it: ty per + r. Columns: tx + 16 c.
template <class T>
struct DenseTile {
  static constexpr int n = sizeof(T) == 4 ? 64 : 32;
  static constexpr int per = n / 16;
};

template <class T>
struct DenseMemory {
  T a[kDenseDepth][DenseTile<T>::n + 1], b[kDenseDepth][DenseTile<T>::n + 1];
  T tile[DenseTile<T>::n][DenseTile<T>::n + 1];
  T rows[kDenseDepth][kDenseSlab];
};

// Rows of one head: element (t, d) is at[t row + d], times scale[t step]'s size unless null.
template <class T>
struct DenseRows {
  const T* at;
  std::int64_t row;
  const T* scale;

  __device__ __forceinline__ T operator()(std::int64_t t, std::int64_t d) const {
    const T v = at[t * row + d];
    return scale != nullptr ? v * (scale[t] < T(0) ? -scale[t] : scale[t]) : v;
  }
};

// One over the lengths of rows (B, H, T); null: taken as they are. Negative where the length is eps
// whatever the row is.
template <class T>
struct DenseLengths {
  const T *q = nullptr, *k = nullptr, *v = nullptr;
};

template <class T>
struct DenseArgs {
  DenseForm form;
  DenseInput<T> in;
  DenseLengths<T> inverse;
  const T *stats, *grad_out, *centre;  // of backward
};

// One window and head.
template <class T>
struct DenseHead {
  std::int64_t b, h, tokens;
  DenseRows<T> q, k, v, gy;
  T tau, nu;
  const T *bias, *top, *inverse, *centre;
  const std::int32_t* label;

  __device__ DenseHead(const DenseArgs<T>& args, std::int64_t head) {
    const DenseForm& f = args.form;
    b = head / f.heads;
    h = head % f.heads;
    tokens = f.tokens;
    const std::int64_t at = b * tokens * args.in.row + h * f.features, first = head * tokens;
    const auto from = [&](const T* lengths) { return lengths ? lengths + first : lengths; };
    q = {args.in.q + at, args.in.row, from(args.inverse.q)};
    k = {args.in.k + at, args.in.row, from(args.inverse.k)};
    v = {args.in.v + at, args.in.row, from(args.inverse.v)};
    const std::int64_t width = f.heads * f.features;
    // Null in the forward pass.
    gy = {args.grad_out ? args.grad_out + b * tokens * width + h * f.features : nullptr, width,
          nullptr};
    tau = args.in.tau ? args.in.tau[h * f.tau_step] : static_cast<T>(f.tau);
    nu = args.in.nu ? args.in.nu[h * f.nu_step] : static_cast<T>(f.nu);
    bias = args.in.bias ? args.in.bias + h * tokens * tokens : nullptr;
    label = args.in.regions ? args.in.regions + b % f.windows * tokens : nullptr;
    top = args.stats ? args.stats + 2 * first : nullptr;
    inverse = args.stats ? top + tokens : nullptr;
    centre = args.centre ? args.centre + first : nullptr;
  }

  // Of <q'_i, k'_j>; both are tokens or behind them.
  __device__ __forceinline__ T score(T product, std::int64_t i, std::int64_t j) const {
    if (i >= tokens || j >= tokens) return -T(INFINITY);
    if (label && label[i] != label[j]) return -T(INFINITY);
    return bias ? tau * product + bias[i * tokens + j] : tau * product;
  }
};

template <class T>
__device__ __forceinline__ T dense_keep(const DenseForm& form, std::int64_t b, std::int64_t h,
                                        std::int64_t i, std::int64_t j) {
  const std::int64_t element = ((b * form.heads + h) * form.tokens + i) * form.keep_row() + j;
  const std::uint32_t word = philox_word(form.seed, form.draw, static_cast<std::uint64_t>(element));
  return dropout_keeps(word, form.threshold) ? static_cast<T>(form.keep_scale) : T(0);
}

__device__ __forceinline__ int dense_tx() { return static_cast<int>(threadIdx.x) % 16; }
__device__ __forceinline__ int dense_ty() { return static_cast<int>(threadIdx.x) / 16; }

// acc[r][c] = <a row of this thread, b row of this thread> for rows first_a... and first_b...; zero
// behind the last token.
template <class T>
__device__ __forceinline__ void dense_products(DenseMemory<T>& memory, const DenseRows<T>& a,
                                               std::int64_t first_a, const DenseRows<T>& b,
                                               std::int64_t first_b, std::int64_t tokens,
                                               std::int64_t features,
                                               T (&acc)[DenseTile<T>::per][DenseTile<T>::per]) {
  constexpr int n = DenseTile<T>::n, per = DenseTile<T>::per;
#pragma unroll
  for (int r = 0; r < per; ++r)
#pragma unroll
    for (int c = 0; c < per; ++c) acc[r][c] = 0;
  for (std::int64_t d0 = 0; d0 < features; d0 += kDenseDepth) {
    __syncthreads();  // what was here before has been read
#pragma unroll
    for (int e = static_cast<int>(threadIdx.x); e < n * kDenseDepth; e += kDenseThreads) {
      const int t = e / kDenseDepth, d = e % kDenseDepth;
      const bool real = d0 + d < features;
      memory.a[d][t] = real && first_a + t < tokens ? a(first_a + t, d0 + d) : T(0);
      memory.b[d][t] = real && first_b + t < tokens ? b(first_b + t, d0 + d) : T(0);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDenseDepth; ++d) {
      T of_a[per], of_b[per];
#pragma unroll
      for (int r = 0; r < per; ++r) of_a[r] = memory.a[d][dense_ty() * per + r];
#pragma unroll
      for (int c = 0; c < per; ++c) of_b[c] = memory.b[d][dense_tx() + 16 * c];
#pragma unroll
      for (int r = 0; r < per; ++r)
#pragma unroll
        for (int c = 0; c < per; ++c) acc[r][c] += of_a[r] * of_b[c];
    }
  }
}

// acc[r][c] += sum over tokens t of the tile of weight(row, t) rows(first + t, column), where
// weight is memory.tile, or its transpose, and column = slab + tx + 16 c.
template <bool transposed, class T>
__device__ __forceinline__ void dense_combine(DenseMemory<T>& memory, const DenseRows<T>& rows,
                                              std::int64_t first, std::int64_t tokens,
                                              std::int64_t slab, std::int64_t features,
                                              T (&acc)[DenseTile<T>::per][kDenseColumns]) {
  constexpr int n = DenseTile<T>::n, per = DenseTile<T>::per;
  for (int t0 = 0; t0 < n && first + t0 < tokens; t0 += kDenseDepth) {
    __syncthreads();  // the tile is written, the rows before these are read
#pragma unroll
    for (int e = static_cast<int>(threadIdx.x); e < kDenseDepth * kDenseSlab; e += kDenseThreads) {
      const int t = e / kDenseSlab, c = e % kDenseSlab;
      memory.rows[t][c] =
          first + t0 + t < tokens && slab + c < features ? rows(first + t0 + t, slab + c) : T(0);
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kDenseDepth; ++t) {
      T weight[per], row[kDenseColumns];
#pragma unroll
      for (int r = 0; r < per; ++r) {
        const int i = dense_ty() * per + r;
        weight[r] = transposed ? memory.tile[t0 + t][i] : memory.tile[i][t0 + t];
      }
#pragma unroll
      for (int c = 0; c < kDenseColumns; ++c) row[c] = memory.rows[t][dense_tx() + 16 * c];
#pragma unroll
      for (int r = 0; r < per; ++r)
#pragma unroll
        for (int c = 0; c < kDenseColumns; ++c) acc[r][c] += weight[r] * row[c];
    }
  }
}

// Writes the thread's part of memory.tile.
template <class T>
__device__ __forceinline__ void dense_store(
    DenseMemory<T>& memory, const T (&value)[DenseTile<T>::per][DenseTile<T>::per]) {
  constexpr int per = DenseTile<T>::per;
  __syncthreads();  // the tile before has been read
#pragma unroll
  for (int r = 0; r < per; ++r)
#pragma unroll
    for (int c = 0; c < per; ++c)
      memory.tile[dense_ty() * per + r][dense_tx() + 16 * c] = value[r][c];
}

// to(i, column) = factor acc for the thread's rows from `first` and columns from `slab`, rows `row`
// apart.
template <class T>
__device__ __forceinline__ void dense_write(const T (&acc)[DenseTile<T>::per][kDenseColumns],
                                            T factor, std::int64_t first, std::int64_t tokens,
                                            std::int64_t slab, std::int64_t features, T* to,
                                            std::int64_t row) {
  constexpr int per = DenseTile<T>::per;
#pragma unroll
  for (int r = 0; r < per; ++r) {
    const std::int64_t i = first + dense_ty() * per + r;
#pragma unroll
    for (int c = 0; c < kDenseColumns; ++c) {
      const std::int64_t column = slab + dense_tx() + 16 * c;
      if (i < tokens && column < features) to[i * row + column] = factor * acc[r][c];
    }
  }
}

// What a block works on: some tile of a head and a slab of columns.
struct DensePlace {
  std::int64_t head, tile, slab;

  __device__ DensePlace(const DenseForm& form, std::int64_t tiles) {
    const std::int64_t slabs = (form.features + kDenseSlab - 1) / kDenseSlab;
    std::int64_t block = blockIdx.x;
    slab = block % slabs * kDenseSlab;
    block /= slabs;
    tile = block % tiles;
    head = block / tiles;
  }
};

template <class T>
std::int64_t dense_tiles(const DenseForm& form) {
  return (form.tokens + DenseTile<T>::n - 1) / DenseTile<T>::n;
}
template <class T>
unsigned dense_blocks(const DenseForm& form) {
  const std::int64_t slabs = (form.features + kDenseSlab - 1) / kDenseSlab;
  return blocks_for(form.batch * form.heads * dense_tiles<T>(form) * slabs, 1);
}

// A warp a row (b, h, t): one over its length.
template <class T>
__global__ void dense_lengths_kernel(DenseForm form, const T* from, std::int64_t row, T* inverse) {
  const std::int64_t at = thread_index() / kWarp, lane = threadIdx.x % kWarp;
  const bool alive = at < form.batch * form.heads * form.tokens;
  const std::int64_t t = at % form.tokens, head = at / form.tokens, h = head % form.heads,
                     b = head / form.heads;
  const T* z = from + (b * form.tokens + t) * row + h * form.features;
  T sum = 0;
  for (std::int64_t d = lane; alive && d < form.features; d += kWarp) sum += z[d] * z[d];
  sum = warp_reduce(sum, Sum());
  if (!alive || lane != 0) return;
  const T eps = static_cast<T>(form.eps);
  if (!form.clamp) {
    inverse[at] = T(1) / scalar::sqrt(sum + eps);
    return;
  }
  const T length = scalar::sqrt(sum);
  inverse[at] = length < eps ? T(-1) / eps : T(1) / length;
}

// The lengths that a form asks for, in memory of their own.
template <class T>
class DenseLengthsBuffer {
 public:
  DenseLengthsBuffer(const DenseForm& form, const DenseInput<T>& in)
      : rows_(form.batch * form.heads * form.tokens),
        memory_((form.cosine ? 2 * rows_ : 0) + (form.normalise_v ? rows_ : 0)) {
    T* at = memory_.get();
    const auto measure = [&](const T* from) {
      launch(dense_lengths_kernel<T>, blocks_for(rows_, kDenseThreads / kWarp), kDenseThreads, 0,
             form, from, in.row, at);
      const T* written = at;
      at += rows_;
      return written;
    };
    if (form.cosine) {
      lengths.q = measure(in.q);
      lengths.k = measure(in.k);
    }
    if (form.normalise_v) lengths.v = measure(in.v);
  }

  DenseLengths<T> lengths;

 private:
  std::int64_t rows_;
  Scratch<T> memory_;
};

}  // namespace lipgrad::cuda
