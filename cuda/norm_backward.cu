#include <lipgrad/ops/kernels/norm.h>

#include "column_sums.cuh"
#include "rowwise.cuh"

namespace lipgrad::cuda {
namespace {

// The gradients of the norms of rows (rows, cols) in one pass over x and gy. With h = gy weight and
// d = x - mean,
//   gx = rstd (h - mean(h) - d rstd mean(h d rstd)), mean(h) left out where mean is null;
//   rstd null (center_norm): gx = factor (h - mean(h)) and factor in the place of rstd.
// A block owns per_team rows for each of its teams of `group` threads, which go through them one
// after the other; a thread has the same columns of every row, keeps d and h of a row until its
// sums are known, and adds up gweight and gbias in memory of its own: shared memory, or `far` where
// a row does not fit. gweight and gbias get a row for each block.
template <class T>
__global__ void norm_backward_kernel(std::int64_t rows, std::int64_t cols, const T* x,
                                     const T* weight, const T* mean, const T* rstd, T factor,
                                     const T* gy, T* gx, T* gweight, T* gbias, int group,
                                     std::int64_t per_team, bool vector, Pack<T>* far) {
  constexpr int size = Pack<T>::size;
  LIPGRAD_DYNAMIC_SHARED(Pack<T>, near);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % group, team = thread / group;
  const int teams = kRowThreads / group, stride = group * size;
  const std::int64_t block = blockIdx.x;
  const bool packs = cols % size == 0;
  const int first = packs ? lane * size : lane, gap = packs ? 1 : group;
  const int arrays = 2 + (gweight ? 1 : 0) + (gbias ? 1 : 0);
  const std::int64_t count = (cols + stride - 1) / stride;  // packs of a thread
  Pack<T>* const memory = far ? far + block * count * arrays * kRowThreads : near;
  const auto kept = [&](std::int64_t k, int array) {
    return memory + (k * arrays + array) * kRowThreads + thread;
  };
  const auto read = [&](const T* p, std::int64_t i) {
    if (vector) return load(p + i);
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < size; ++j) pack.v[j] = i + j * gap < cols ? p[i + j * gap] : T(0);
    return pack;
  };
  const auto write = [&](T* p, std::int64_t i, const Pack<T>& pack) {
    if (vector) return store(p + i, pack);
#pragma unroll
    for (int j = 0; j < size; ++j)
      if (i + j * gap < cols) p[i + j * gap] = pack.v[j];
  };
  const auto team_sum = [&](T value) {
    if (group > kWarp) return block_reduce<kRowThreads>(value, Sum(), T(0));
    for (int step = group / 2; step > 0; step /= 2)
      value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
  };

  for (std::int64_t k = 0; k < count; ++k)
    for (int array = 2; array < arrays; ++array) *kept(k, array) = Pack<T>{};
  const std::int64_t begin = block * per_team * teams;
  for (std::int64_t t = 0; t < per_team && begin + t * teams < rows; ++t) {
    const std::int64_t row = begin + t * teams + team, at = row * cols;
    const bool alive = row < rows;
    const T centre = alive && x && mean ? mean[row] : T(0);
    const T scale = !rstd ? factor : alive ? rstd[row] : T(0);
    T sum = 0, dot = 0;
    for (std::int64_t k = 0, i = first; alive && i < cols; ++k, i += stride) {
      const Pack<T> g = read(gy + at, i);
      Pack<T> d{}, h = g;
      if (x) d = read(x + at, i);
      if (weight) {
        const Pack<T> w = read(weight, i);
#pragma unroll
        for (int j = 0; j < size; ++j) h.v[j] *= w.v[j];
      }
#pragma unroll
      for (int j = 0; j < size; ++j) {
        d.v[j] -= centre;
        sum += h.v[j];
        dot += h.v[j] * d.v[j];
      }
      if (gx) {
        *kept(k, 0) = d;
        *kept(k, 1) = h;
      }
      if (gweight) {
        Pack<T> total = *kept(k, 2);
#pragma unroll
        for (int j = 0; j < size; ++j) total.v[j] += g.v[j] * (d.v[j] * scale);
        *kept(k, 2) = total;
      }
      if (gbias) {
        Pack<T> total = *kept(k, arrays - 1);
#pragma unroll
        for (int j = 0; j < size; ++j) total.v[j] += g.v[j];
        *kept(k, arrays - 1) = total;
      }
    }
    if (!gx) continue;
    const T n = static_cast<T>(cols);
    const T shift = mean || !rstd ? team_sum(sum) / n : T(0);
    const T along = rstd ? team_sum(dot) * scale / n : T(0);
    for (std::int64_t k = 0, i = first; alive && i < cols; ++k, i += stride) {
      const Pack<T> d = *kept(k, 0);
      Pack<T> h = *kept(k, 1);
#pragma unroll
      for (int j = 0; j < size; ++j) {
        T rest = h.v[j] - shift;
        if (rstd) rest -= d.v[j] * scale * along;
        h.v[j] = scale * rest;
      }
      write(gx + at, i, h);
    }
  }

  // The teams' sums, in order, one pack of columns a thread.
  if (arrays == 2) return;
  __syncthreads();
  for (int place = thread; place < count * group; place += kRowThreads) {
    const std::int64_t k = place / group, i = (place % group) * (packs ? size : 1) + k * stride;
    if (i >= cols) continue;
    for (int array = 2; array < arrays; ++array) {
      const Pack<T>* from = memory + (k * arrays + array) * kRowThreads + place % group;
      Pack<T> total = *from;
      for (int other = 1; other < teams; ++other)
#pragma unroll
        for (int j = 0; j < size; ++j) total.v[j] += from[other * group].v[j];
      T* const to = (array == 2 && gweight ? gweight : gbias) + block * cols;
#pragma unroll
      for (int j = 0; j < size; ++j)
        if (i + j * gap < cols) to[i + j * gap] = total.v[j];
    }
  }
}

template <class T>
void run(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* mean,
         const T* rstd, T factor, const T* gy, T* gx, T* gweight, T* gbias) {
  constexpr int size = Pack<T>::size;
  if (rows == 0 || cols == 0) {
    if (gweight) column_sums(rows, cols, gy, gweight);
    if (gbias) column_sums(rows, cols, gy, gbias);
    return;
  }
  int group = 1;
  while (group < kWarp && group * size < cols) group *= 2;
  if (cols > kWarp * size * kRowPacks) group = kRowThreads;
  const std::int64_t teams = kRowThreads / group;
  // Rows enough for the sums of blocks to be few beside x and gy, few enough for short chains.
  const std::int64_t least = !gweight && !gbias ? 1 : teams > 1 ? 4 : 16;
  std::int64_t per_team = (rows + kReduceBlocks * teams - 1) / (kReduceBlocks * teams);
  per_team = per_team < least ? least : per_team > 64 ? 64 : per_team;
  const std::int64_t blocks = (rows + per_team * teams - 1) / (per_team * teams);

  const std::int64_t arrays = 2 + (gweight ? 1 : 0) + (gbias ? 1 : 0);
  const std::int64_t packs = (cols + group * size - 1) / (group * size) * arrays * kRowThreads;
  std::int64_t bytes = packs * std::int64_t{16};
  const Scratch<Pack<T>> far(bytes > kRowShared ? blocks * packs : 0);
  const bool in_shared = bytes <= kRowShared;
  if (!in_shared) bytes = 0;
  const Scratch<T> weights(gweight && blocks > 1 ? blocks * cols : 0);
  const Scratch<T> biases(gbias && blocks > 1 ? blocks * cols : 0);
  const bool vector = cols % size == 0 && aligned(x, weight, gy, gx);
  allow_shared(norm_backward_kernel<T>, bytes);
  launch(norm_backward_kernel<T>, blocks_for(blocks, 1), kRowThreads,
         static_cast<std::size_t>(bytes), rows, cols, x, weight, mean, rstd, factor, gy, gx,
         gweight && blocks > 1 ? weights.get() : gweight,
         gbias && blocks > 1 ? biases.get() : gbias, group, per_team, vector,
         in_shared ? static_cast<Pack<T>*>(nullptr) : far.get());
  if (blocks == 1) return;
  if (gweight) column_sums(blocks, cols, static_cast<const T*>(weights.get()), gweight);
  if (gbias) column_sums(blocks, cols, static_cast<const T*>(biases.get()), gbias);
}

}  // namespace

template <class T>
void norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* mean,
                   const T* rstd, const T* gy, T* gx, T* gweight, T* gbias) {
  run(rows, cols, x, weight, mean, rstd, T(0), gy, gx, gweight, gbias);
}

template <class T>
void center_norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight,
                          const T* mean, const T* gy, T* gx, T* gweight, T* gbias) {
  const T factor = static_cast<T>(static_cast<double>(cols) / static_cast<double>(cols - 1));
  run<T>(rows, cols, gweight ? x : nullptr, weight, mean, nullptr, factor, gy, gx, gweight, gbias);
}

#define INSTANTIATE(T)                                                                            \
  template void norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*, const T*, \
                              const T*, T*, T*, T*);                                              \
  template void center_norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*,    \
                                     const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
