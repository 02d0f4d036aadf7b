#include <lipgrad/ops/kernels/shape.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // that a block of kTile * kTileRows threads copies at once

// Drops dimensions of size 1 and merges neighbours that lie behind one another on both sides.
StridedBox merged(const StridedBox& box) {
  StridedBox m;
  for (int i = 0; i < box.rank; ++i) {
    if (box.size[i] == 1) continue;
    const int last = m.rank - 1;
    if (m.rank > 0 && m.to[last] == box.size[i] * box.to[i] &&
        m.from[last] == box.size[i] * box.from[i]) {
      m.size[last] *= box.size[i];
      m.to[last] = box.to[i];
      m.from[last] = box.from[i];
    } else {
      m.size[m.rank] = box.size[i];
      m.to[m.rank] = box.to[i];
      m.from[m.rank++] = box.from[i];
    }
  }
  if (m.rank == 0) {  // a single element
    m.rank = 1;
    m.size[0] = m.to[0] = m.from[0] = 1;
  }
  return m;
}

// Where element i of the box's first `dims` dimensions lies on both sides.
__device__ __forceinline__ void find(const StridedBox& box, int dims, std::int64_t i,
                                     std::int64_t& to, std::int64_t& from) {
  to = from = 0;
  if (i <= 0x7fffffff) {  // divisions of 64 bits cost four times as much
    unsigned rest = static_cast<unsigned>(i);
    for (int d = dims - 1; d >= 0; --d) {
      const std::int64_t size = box.size[d];
      const unsigned up = size > rest ? 0 : rest / static_cast<unsigned>(size);
      const std::int64_t index = rest - up * static_cast<unsigned>(size);
      to += index * box.to[d];
      from += index * box.from[d];
      rest = up;
    }
    return;
  }
  for (int d = dims - 1; d >= 0; --d) {
    const std::int64_t up = i / box.size[d], index = i - up * box.size[d];
    to += index * box.to[d];
    from += index * box.from[d];
    i = up;
  }
}

// n elements of the box in the order of its dimensions. Where `vector` the innermost distance is 1
// on both sides, its size and all other distances are multiples of a pack, and all is aligned.
template <class T>
__global__ void copy_kernel(const __grid_constant__ StridedBox box, std::int64_t n, bool vector,
                            T* to, const T* from) {
  constexpr int size = Pack<T>::size;
  std::int64_t target, source;
  if (vector) {
    const std::int64_t i = thread_index() * size;
    if (i >= n) return;
    find(box, box.rank, i, target, source);
    store(to + target, load(from + source));
    return;
  }
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * (kMapThreads * size);
  for (int k = 0; k < size; ++k) {
    const std::int64_t i = base + k * kMapThreads + static_cast<int>(threadIdx.x);
    if (i >= n) return;
    find(box, box.rank, i, target, source);
    to[target] = from[source];
  }
}

// The box's last two dimensions (a, b) are a transposition, (.., 1) on one side and (1, ..) on the
// other; the others count planes. Tiles of kTile x kTile go through shared memory, so that both
// sides are read and written along their rows. `from_is_last`: the source's neighbours lie along b.
template <class T>
__global__ void transpose_kernel(const __grid_constant__ StridedBox box, std::int64_t a_tiles,
                                 std::int64_t b_tiles, bool from_is_last, T* to, const T* from) {
  LIPGRAD_SHARED(T, tile, [kTile][kTile + 1]);
  const int a = box.rank - 2, b = box.rank - 1;
  const int thread = static_cast<int>(threadIdx.x), x = thread % kTile, y = thread / kTile;
  const std::int64_t block = blockIdx.x, rest = block / b_tiles;
  const std::int64_t b0 = (block - rest * b_tiles) * kTile, plane = rest / a_tiles,
                     a0 = (rest - plane * a_tiles) * kTile;
  std::int64_t target, source;
  find(box, box.rank - 2, plane, target, source);
  for (int r = y; r < kTile; r += kTileRows) {
    const std::int64_t i = a0 + (from_is_last ? r : x), j = b0 + (from_is_last ? x : r);
    if (i < box.size[a] && j < box.size[b])
      tile[r][x] = from[source + i * box.from[a] + j * box.from[b]];
  }
  __syncthreads();
  for (int r = y; r < kTile; r += kTileRows) {
    const std::int64_t i = a0 + (from_is_last ? x : r), j = b0 + (from_is_last ? r : x);
    if (i < box.size[a] && j < box.size[b]) to[target + i * box.to[a] + j * box.to[b]] = tile[x][r];
  }
}

template <class T>
void copy(const StridedBox& box, T* to, const T* from) {
  constexpr int size = Pack<T>::size;
  std::int64_t n = 1;
  for (int i = 0; i < box.rank; ++i) n *= box.size[i];
  const int last = box.rank - 1;
  // Two dimensions in which the sides lie the other way round: the last one, and one that is
  // contiguous on the other side. The order of dimensions is free: that one goes last but one.
  for (int i = 0; i < last; ++i) {
    const bool from_is_last = box.from[last] == 1 && box.to[i] == 1;
    const bool to_is_last = box.to[last] == 1 && box.from[i] == 1;
    if (!from_is_last && !to_is_last) continue;
    if (box.size[i] < 8 || box.size[last] < 8) continue;
    StridedBox planes = box;
    for (int d = i; d + 1 < last; ++d) {
      planes.size[d] = box.size[d + 1];
      planes.to[d] = box.to[d + 1];
      planes.from[d] = box.from[d + 1];
    }
    planes.size[last - 1] = box.size[i];
    planes.to[last - 1] = box.to[i];
    planes.from[last - 1] = box.from[i];
    const std::int64_t a_tiles = (box.size[i] + kTile - 1) / kTile,
                       b_tiles = (box.size[last] + kTile - 1) / kTile;
    const std::int64_t blocks = n / (box.size[i] * box.size[last]) * a_tiles * b_tiles;
    launch(transpose_kernel<T>, blocks_for(blocks, 1), kTile * kTileRows, 0, planes, a_tiles,
           b_tiles, from_is_last, to, from);
    return;
  }
  bool vector =
      box.to[last] == 1 && box.from[last] == 1 && box.size[last] % size == 0 && aligned(to, from);
  for (int i = 0; i < last; ++i) vector &= box.to[i] % size == 0 && box.from[i] % size == 0;
  launch(copy_kernel<T>, blocks_for(n, kMapThreads * size), kMapThreads, 0, box, n, vector, to,
         from);
}

}  // namespace

void copy_strided(const StridedBox& box, std::int64_t element, void* to, const void* from) {
  for (int i = 0; i < box.rank; ++i)
    if (box.size[i] == 0) return;
  const StridedBox m = merged(box);
  if (element == 4) {
    copy(m, static_cast<std::uint32_t*>(to), static_cast<const std::uint32_t*>(from));
  } else if (element == 8) {
    copy(m, static_cast<std::uint64_t*>(to), static_cast<const std::uint64_t*>(from));
  } else {
    copy(m, static_cast<std::uint8_t*>(to), static_cast<const std::uint8_t*>(from));
  }
}

}  // namespace lipgrad::cuda
