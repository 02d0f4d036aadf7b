#pragma once

// C++17. Rows picked and added by index. On the CPU indices must lie in range: the op checks them.
// On CUDA devices the kernels do: an index at fault is reported and left out.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // y[i] = x[index[i]] for i < count; x is (rows, cols), y (count, cols). Left out: zeros.
    template <class T, class Index>
    void gather_rows(std::int64_t rows, std::int64_t count, std::int64_t cols, const T* x,
                     const Index* index, T* y);

    // y[r] = the sum of x[i] over i with index[i] = r, in the order of i (on CUDA devices, rows of
    // more than 512 terms: in pieces of as many); y is (rows, cols), 0 where no index points. x is
    // (count, cols).
    template <class T, class Index>
    void scatter_add_rows(std::int64_t rows, std::int64_t count, std::int64_t cols, const T* x,
                          const Index* index, T* y);)

namespace lipgrad::cpu {
// The position of the first index outside [0, rows), or -1.
template <class Index>
std::int64_t find_out_of_range(std::int64_t count, std::int64_t rows, const Index* index);
}  // namespace lipgrad::cpu
