#pragma once

#include <cstdint>

namespace lipgrad::cpu {

// C(m, n) = alpha op(A) B + beta C on the calling thread, A read in place: element (i, l) of op(A)
// is a[i * row_a + l * col_a]. Element (l, j) of B is b[l * row_b + j * col_b]; B is copied into
// panels as it goes. beta = 0 does not read C. m, n, k >= 1. T is float or double.
template <class T>
void direct_gemm(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* a,
                 std::int64_t row_a, std::int64_t col_a, const T* b, std::int64_t row_b,
                 std::int64_t col_b, T beta, T* c, std::int64_t ldc);

}  // namespace lipgrad::cpu
