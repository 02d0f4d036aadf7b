#include <algorithm>
#include <cstring>

#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/shape.h>

namespace lipgrad::cpu {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements
constexpr std::int64_t tile = 16;        // of a transposition: two cache lines of floats each way

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
  return m;
}

template <class T>
void copy_row(std::int64_t n, T* to, std::int64_t to_step, const T* from, std::int64_t from_step) {
  if (to_step == 1 && from_step == 1) {
    std::memcpy(to, from, n * sizeof(T));
  } else if (to_step == 1 && from_step == 0) {
    std::fill(to, to + n, *from);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
  }
}

// The last two dimensions, tile by tile when their order differs on the two sides.
template <class T>
void copy_plane(const StridedBox& box, T* to, const T* from) {
  const int r = box.rank - 2, c = box.rank - 1;
  const std::int64_t rows = box.size[r], cols = box.size[c];
  if (box.from[c] == 1 || box.from[r] != 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      copy_row(cols, to + i * box.to[r], box.to[c], from + i * box.from[r], box.from[c]);
    return;
  }
  for (std::int64_t i0 = 0; i0 < rows; i0 += tile)
    for (std::int64_t j0 = 0; j0 < cols; j0 += tile)
      for (std::int64_t i = i0; i < std::min(rows, i0 + tile); ++i)
        copy_row(std::min(cols, j0 + tile) - j0, to + i * box.to[r] + j0 * box.to[c], box.to[c],
                 from + i + j0 * box.from[c], box.from[c]);
}

template <class T>
void copy_typed(const StridedBox& box, T* to, const T* from) {
  if (box.rank == 0) {
    *to = *from;
    return;
  }
  if (box.rank == 1) {
    parallel_for(box.size[0], grain, [&](std::int64_t begin, std::int64_t end) {
      copy_row(end - begin, to + begin * box.to[0], box.to[0], from + begin * box.from[0],
               box.from[0]);
    });
    return;
  }
  const int outer = box.rank - 2;
  std::int64_t planes = 1;
  for (int i = 0; i < outer; ++i) planes *= box.size[i];
  // Pieces of rows of the planes: (plane, first row).
  const std::int64_t rows = box.size[outer], cols = box.size[outer + 1];
  const std::int64_t rows_a_piece =
      std::clamp<std::int64_t>(grain / cols / tile * tile, tile, std::max(rows, tile));
  const std::int64_t pieces = (rows + rows_a_piece - 1) / rows_a_piece;
  const std::int64_t elements = std::max<std::int64_t>(1, std::min(rows, rows_a_piece) * cols);
  parallel_for(planes * pieces, std::max<std::int64_t>(1, grain / elements),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t k = begin; k < end; ++k) {
                   std::int64_t rest = k / pieces, to_offset = 0, from_offset = 0;
                   for (int i = outer; i-- > 0;) {
                     to_offset += rest % box.size[i] * box.to[i];
                     from_offset += rest % box.size[i] * box.from[i];
                     rest /= box.size[i];
                   }
                   const std::int64_t first = k % pieces * rows_a_piece;
                   StridedBox plane = box;
                   plane.size[outer] = std::min(rows - first, rows_a_piece);
                   copy_plane(plane, to + to_offset + first * box.to[outer],
                              from + from_offset + first * box.from[outer]);
                 }
               });
}

}  // namespace

void copy_strided(const StridedBox& box, std::int64_t element, void* to, const void* from) {
  for (int i = 0; i < box.rank; ++i)
    if (box.size[i] == 0) return;
  const StridedBox m = merged(box);
  if (element == 4) {
    copy_typed(m, static_cast<std::uint32_t*>(to), static_cast<const std::uint32_t*>(from));
  } else if (element == 8) {
    copy_typed(m, static_cast<std::uint64_t*>(to), static_cast<const std::uint64_t*>(from));
  } else {
    copy_typed(m, static_cast<std::uint8_t*>(to), static_cast<const std::uint8_t*>(from));
  }
}

}  // namespace lipgrad::cpu
