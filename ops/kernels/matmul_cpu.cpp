#include <lipgrad/ops/kernels/matmul.h>

#include <lipgrad/core/blas.h>

namespace lipgrad::cpu {

template <class T>
void matmul(std::int64_t batch, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n,
            std::int64_t k, const T* a, std::int64_t stride_a, const T* b, std::int64_t stride_b,
            T* c) {
  gemm_batched<T>(batch, trans_a, trans_b, m, n, k, T(1), a, trans_a ? m : k, stride_a, b,
                  trans_b ? k : n, stride_b, T(0), c, n, m * n);
}

#define INSTANTIATE(T)                                                                     \
  template void matmul(std::int64_t, bool, bool, std::int64_t, std::int64_t, std::int64_t, \
                       const T*, std::int64_t, const T*, std::int64_t, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
