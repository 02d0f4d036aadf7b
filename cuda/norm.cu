#include <lipgrad/ops/kernels/norm.h>
#include <lipgrad/ops/kernels/scalar_math.h>

#include "rowwise.cuh"

namespace lipgrad::cuda {
namespace {

template <class T>
struct OneArray : RowOp<T, 1> {
  const T* x;
  T* y;
  __device__ const T* input(int) const { return x; }
  __device__ T* output() const { return y; }
};

// layer_norm, rms_norm (mean null: of x - 0) and center_norm. The first statistic is the mean, the
// second 1 / sqrt(mean of squares + eps), or the fixed factor of center_norm.
template <class T>
struct Centred : OneArray<T> {
  static constexpr bool columns = true;
  const T *weight_, *bias_;
  T* mean;
  __device__ const T* weight() const { return weight_; }
  __device__ const T* bias() const { return bias_; }
  __device__ T first(const T (&e)[1]) const { return e[0]; }
  __device__ T middle(T sum, std::int64_t n, std::int64_t) const {
    return mean ? sum / static_cast<T>(n) : T(0);
  }
};

template <class T>
struct LayerNorm : Centred<T> {
  static constexpr int steps = 2;
  double eps;
  T* rstd;
  __device__ T second(T (&e)[1], T centre) const {
    e[0] -= centre;
    return e[0] * e[0];
  }
  __device__ T last(T, T squares, std::int64_t n, std::int64_t) const {
    return static_cast<T>(1 / sqrt(static_cast<double>(squares) / static_cast<double>(n) + eps));
  }
  __device__ T result(const T (&e)[1], T weight, T bias, T, T scale) const {
    return e[0] * scale * weight + bias;
  }
  __device__ void finish(std::int64_t row, T centre, T scale) const {
    if (this->mean) this->mean[row] = centre;
    rstd[row] = scale;
  }
};

template <class T>
struct CenterNorm : Centred<T> {
  T factor;
  __device__ T result(const T (&e)[1], T weight, T bias, T centre, T) const {
    return (e[0] - centre) * factor * weight + bias;
  }
  __device__ void finish(std::int64_t row, T centre, T) const { this->mean[row] = centre; }
};

template <class T>
struct L2Normalize : OneArray<T> {
  T eps;
  T* norm;
  __device__ T first(const T (&e)[1]) const { return e[0] * e[0]; }
  __device__ T middle(T squares, std::int64_t, std::int64_t) const { return scalar::sqrt(squares); }
  __device__ T result(const T (&e)[1], T, T, T length, T) const {
    return e[0] / (length < eps ? eps : length);
  }
  __device__ void finish(std::int64_t slot, T length, T) const { norm[slot] = length; }
};

// e = (y, gy); the statistic is <y, gy>, then b the divisor.
template <class T>
struct L2Backward : RowOp<T, 2> {
  T eps;
  const T *y, *norm, *gy;
  T* gx;
  __device__ const T* input(int k) const { return k == 0 ? y : gy; }
  __device__ T* output() const { return gx; }
  __device__ T first(const T (&e)[2]) const { return e[0] * e[1]; }
  __device__ T middle(T dot, std::int64_t, std::int64_t slot) const {
    return norm[slot] < eps ? T(0) : dot;
  }
  __device__ T last(T, T, std::int64_t, std::int64_t slot) const {
    return norm[slot] < eps ? eps : norm[slot];
  }
  __device__ T result(const T (&e)[2], T, T, T along, T divisor) const {
    return (e[1] - e[0] * along) / divisor;
  }
};

}  // namespace

template <class T>
void layer_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight,
                const T* bias, T* y, T* mean, T* rstd) {
  map_rows(LayerNorm<T>{{{{}, x, y}, weight, bias, mean}, eps, rstd}, rows, cols,
           aligned(x, weight, bias, y));
}

template <class T>
void rms_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight, T* y,
              T* rstd) {
  map_rows(LayerNorm<T>{{{{}, x, y}, weight, nullptr, nullptr}, eps, rstd}, rows, cols,
           aligned(x, weight, y));
}

template <class T>
void center_norm(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* bias,
                 T* y, T* mean) {
  const T factor = static_cast<T>(static_cast<double>(cols) / static_cast<double>(cols - 1));
  map_rows(CenterNorm<T>{{{{}, x, y}, weight, bias, mean}, factor}, rows, cols,
           aligned(x, weight, bias, y));
}

template <class T>
void l2_normalize(std::int64_t outer, std::int64_t n, std::int64_t inner, double eps, const T* x,
                  T* y, T* norm) {
  map_along(L2Normalize<T>{{{}, x, y}, static_cast<T>(eps), norm}, outer, n, inner, aligned(x, y));
}

template <class T>
void l2_normalize_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, double eps,
                           const T* y, const T* norm, const T* gy, T* gx) {
  map_along(L2Backward<T>{{}, static_cast<T>(eps), y, norm, gy, gx}, outer, n, inner,
            aligned(y, gy, gx));
}

#define INSTANTIATE(T)                                                                            \
  template void layer_norm(std::int64_t, std::int64_t, double, const T*, const T*, const T*, T*,  \
                           T*, T*);                                                               \
  template void rms_norm(std::int64_t, std::int64_t, double, const T*, const T*, T*, T*);         \
  template void center_norm(std::int64_t, std::int64_t, const T*, const T*, const T*, T*, T*);    \
  template void l2_normalize(std::int64_t, std::int64_t, std::int64_t, double, const T*, T*, T*); \
  template void l2_normalize_backward(std::int64_t, std::int64_t, std::int64_t, double, const T*, \
                                      const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
