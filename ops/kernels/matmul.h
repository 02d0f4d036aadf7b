#pragma once

// C++17. Products of dense row-major matrices.

#include <cstdint>

#include <lipgrad/core/kernel.h>

LIPGRAD_KERNELS(
    // c(batch, m, n) = op(a) op(b) for each of a batch: op(a) is (m, k), stored as (k, m) when
    // trans_a; op(b) is (k, n), stored as (n, k) when trans_b. Operands of the batch start stride_a
    // and stride_b elements after one another (0: shared), those of c m * n; each is contiguous.
    template <class T> void matmul(std::int64_t batch, bool trans_a, bool trans_b, std::int64_t m,
                                   std::int64_t n, std::int64_t k, const T* a,
                                   std::int64_t stride_a, const T* b, std::int64_t stride_b, T* c);)
