#include <lipgrad/ops/kernels/scalar_math.h>
#include <lipgrad/ops/kernels/softmax.h>

#include "rowwise.cuh"

namespace lipgrad::cuda {
namespace {

// softmax, or its logarithm. The first statistic is the largest element, the second the sum of
// exp(x - largest); e becomes exp(x - largest), for the logarithm it stays x.
template <class T, bool kLog>
struct Softmax : RowOp<T, 1> {
  using First = Max;
  static constexpr int steps = 2;
  const T* x;
  const std::uint8_t* mask;
  T* y;

  __device__ static T first_identity() { return -T(INFINITY); }
  __device__ const T* input(int) const { return x; }
  __device__ T* output() const { return y; }
  __device__ void prepare(std::int64_t at, T (&e)[1]) const {
    if (mask && mask[at] == 0) e[0] = -T(INFINITY);
  }
  __device__ T first(const T (&e)[1]) const { return e[0]; }
  __device__ T second(T (&e)[1], T top) const {
    const T part = scalar::exp(e[0] - top);
    if (!kLog) e[0] = part;
    return part;
  }
  __device__ T last(T top, T sum, std::int64_t, std::int64_t) const {
    return kLog ? top + scalar::log(sum) : T(1) / sum;
  }
  __device__ T result(const T (&e)[1], T, T, T top, T scale) const {
    if (top == -T(INFINITY)) return 0;
    return kLog ? e[0] - scale : e[0] * scale;
  }
};

// e = (y, gy); the statistic is <y, gy>.
template <class T>
struct SoftmaxBackward : RowOp<T, 2> {
  const T *y, *gy;
  T* gx;

  __device__ const T* input(int k) const { return k == 0 ? y : gy; }
  __device__ T* output() const { return gx; }
  __device__ T first(const T (&e)[2]) const { return e[0] * e[1]; }
  __device__ T result(const T (&e)[2], T, T, T dot, T) const { return e[0] * (e[1] - dot); }
};

// e = (y, gy), then (exp(y), gy). The statistics are the sum of exp(y), which is 1 unless the row
// was set to 0 (or is one entry, whose gradient is 0 anyway), and that of gy where y > -inf.
template <class T>
struct LogSoftmaxBackward : RowOp<T, 2> {
  static constexpr int steps = 2;
  const T *y, *gy;
  T* gx;

  __device__ const T* input(int k) const { return k == 0 ? y : gy; }
  __device__ T* output() const { return gx; }
  __device__ T first(const T (&e)[2]) const { return scalar::exp(e[0]); }
  __device__ T second(T (&e)[2], T) const { return e[0] == -T(INFINITY) ? T(0) : e[1]; }
  __device__ T result(const T (&e)[2], T, T, T mass, T total) const {
    if (mass > T(1.5) || e[0] == -T(INFINITY)) return 0;
    return e[1] - scalar::exp(e[0]) * total;
  }
};

}  // namespace

template <class T>
void softmax(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
             const std::uint8_t* mask, T* y) {
  map_along(Softmax<T, false>{{}, x, mask, y}, outer, n, inner, aligned(x, y));
}
template <class T>
void log_softmax(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
                 const std::uint8_t* mask, T* y) {
  map_along(Softmax<T, true>{{}, x, mask, y}, outer, n, inner, aligned(x, y));
}

template <class T>
void softmax_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* y,
                      const T* gy, T* gx) {
  map_along(SoftmaxBackward<T>{{}, y, gy, gx}, outer, n, inner, aligned(y, gy, gx));
}
template <class T>
void log_softmax_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* y,
                          const T* gy, T* gx) {
  map_along(LogSoftmaxBackward<T>{{}, y, gy, gx}, outer, n, inner, aligned(y, gy, gx));
}

#define INSTANTIATE(T)                                                                             \
  template void softmax(std::int64_t, std::int64_t, std::int64_t, const T*, const std::uint8_t*,   \
                        T*);                                                                       \
  template void log_softmax(std::int64_t, std::int64_t, std::int64_t, const T*,                    \
                            const std::uint8_t*, T*);                                              \
  template void softmax_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*,     \
                                 T*);                                                              \
  template void log_softmax_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, \
                                     T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
