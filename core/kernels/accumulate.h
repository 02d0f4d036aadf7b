#pragma once

// C++17, for host and device compilers alike. What the engine itself computes.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

// A contiguous array whose dimensions are each kept or summed, neighbours of one kind merged, those
// of size 1 left out. Rank 0 is a single element.
struct ReducedBox {
  static constexpr int max_rank = 8;
  int rank = 0;
  std::int64_t size[max_rank] = {};
  bool kept[max_rank] = {};

  void add(std::int64_t n, bool keep) {
    if (n == 1) return;
    if (rank > 0 && kept[rank - 1] == keep) {
      size[rank - 1] *= n;
    } else {
      size[rank] = n;
      kept[rank++] = keep;
    }
  }
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // to += from, summed over the dimensions that are not kept. Blocks and the order in which they
    // are combined depend on the sizes alone.
    template <class T> void accumulate(const ReducedBox& box, T* to, const T* from);

    // x[i] = value for i < n; T is any element type.
    template <class T> void fill(T* x, std::int64_t n, T value);)

namespace lipgrad::cuda {
// *found = 1 if one of n elements is a NaN or infinite, else 0.
template <class T>
void has_nonfinite(const T* x, std::int64_t n, int* found);
}  // namespace lipgrad::cuda
