#include <lipgrad/graph/kernels/message_passing.h>

#include "edge_rows.cuh"

namespace lipgrad::cuda {
namespace {

// For source j = row: gy of the targets whose largest it is.
template <class T>
struct NeighborMaxGradient : SumTerms<T> {
  static constexpr int batch = 2;  // of two reads that depend on a third each
  std::int64_t columns;
  const std::int32_t *target, *argmax;
  const T* gy;
  T* gx;

  __device__ __forceinline__ T load(std::int64_t row, std::int64_t begin, std::int64_t e,
                                    std::int64_t column) const {
    const std::int64_t i = target[e];
    if (e > begin && target[e - 1] == i) return T(0);  // a repeated edge has one maximum
    const std::int64_t at = i * columns + column;
    return argmax[at] == row ? gy[at] : T(0);
  }
  __device__ __forceinline__ void finish(std::int64_t row, std::int64_t, std::int64_t column,
                                         double sum) const {
    gx[row * columns + column] = static_cast<T>(sum);
  }
};

template <class T>
struct EdgeEnds {
  std::int64_t columns;
  const std::int32_t* other;
  const T *x, *own;
  T* y;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t, std::int64_t e,
                                             std::int64_t column) const {
    T value = x[other[e] * columns + column];
    if (own != nullptr) value += own[row * columns + column];
    y[e * columns + column] = value;
  }
};

}  // namespace

template <class T>
void neighbor_max(std::int64_t rows, std::int64_t edges, std::int64_t features,
                  const std::int64_t* offsets, const std::int32_t* columns, const T* x, T* y,
                  std::int32_t* argmax) {
  reduce_rows(Csr{rows, edges, offsets}, features,
              MaximumTerms<T, std::int32_t>{features, columns, x, y, argmax});
}

template <class T>
void neighbor_max_backward(std::int64_t rows, std::int64_t edges, std::int64_t features,
                           const std::int64_t* offsets, const std::int32_t* columns,
                           const std::int32_t* argmax, const T* gy, T* gx) {
  reduce_rows(Csr{rows, edges, offsets}, features,
              NeighborMaxGradient<T>{{}, features, columns, argmax, gy, gx});
}

template <class T>
void edge_ends(std::int64_t rows, std::int64_t edges, std::int64_t features,
               const std::int64_t* offsets, const std::int32_t* columns, const T* x, const T* own,
               T* y) {
  each_edge(Csr{rows, edges, offsets}, features, EdgeEnds<T>{features, columns, x, own, y});
}

#define INSTANTIATE(T)                                                                      \
  template void neighbor_max(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                             const std::int32_t*, const T*, T*, std::int32_t*);             \
  template void neighbor_max_backward(std::int64_t, std::int64_t, std::int64_t,             \
                                      const std::int64_t*, const std::int32_t*,             \
                                      const std::int32_t*, const T*, T*);                   \
  template void edge_ends(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,    \
                          const std::int32_t*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
