#pragma once

// C++17, for host and device compilers alike.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

// A box of elements in two layouts: sizes, and for either side the distance between neighbours
// along each dimension, in elements. A distance of 0 repeats an element (of the source only).
struct StridedBox {
  static constexpr int max_rank = 8;
  int rank = 0;
  std::int64_t size[max_rank] = {};
  std::int64_t to[max_rank] = {};
  std::int64_t from[max_rank] = {};
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // Copies the elements of the box, of `element` bytes each (1, 4 or 8), from one layout to the
    // other.
    void copy_strided(const StridedBox& box, std::int64_t element, void* to, const void* from);)
