#include <lipgrad/ops/kernels/reduce.h>

#include "broadcast.cuh"
#include "column_sums.cuh"

namespace lipgrad::cuda {
namespace {

// y = scale * sum of x, of (x - mean)^2 where mean is given, or y += the sum. Elements of a pack
// are added in X, packs in double.
template <class X, class T>
struct SumTerms {
  using Value = X;
  using State = double;
  const X* x;
  const T* mean;
  double scale;
  bool add;
  T* y;

  __device__ const X* data() const { return x; }
  __device__ double none() const { return 0; }
  template <int size>
  __device__ __forceinline__ void take(double& state, const X (&v)[size], int count, std::int64_t,
                                       std::int64_t, std::int64_t slot) const {
    const X centre = mean ? static_cast<X>(mean[slot]) : X(0);
    X sum = 0;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      if (k >= count) continue;
      const X d = v[k] - centre;
      sum += mean ? d * d : d;
    }
    state += static_cast<double>(sum);
  }
  __device__ static double merge(double a, double b) { return a + b; }
  __device__ void finish(double state, std::int64_t slot) const {
    y[slot] = add ? y[slot] + static_cast<T>(state) : static_cast<T>(scale * state);
  }
};

template <class X, class T>
void run(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale, bool add, const X* x,
         const T* mean, T* y) {
  reduce(SumTerms<X, T>{x, mean, scale, add, y}, outer, n, inner, x);
}

struct VarBackward {
  double scale;
  template <class T>
  __device__ T operator()(T x, T mean, T gy) const {
    return gy * T(scale) * (x - mean);
  }
};

}  // namespace

template <class T>
void sum(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale, const T* x, T* y) {
  run<T, T>(outer, n, inner, scale, false, x, nullptr, y);
}

template <class T>
void var(std::int64_t outer, std::int64_t n, std::int64_t inner, double correction, const T* x,
         T* mean, T* y) {
  run<T, T>(outer, n, inner, 1.0 / static_cast<double>(n), false, x, nullptr, mean);
  run(outer, n, inner, 1.0 / (static_cast<double>(n) - correction), false, x,
      static_cast<const T*>(mean), y);
}

template <class T>
void var_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, double correction,
                  const T* x, const T* mean, const T* gy, T* gx) {
  broadcast(VarBackward{2 / (static_cast<double>(n) - correction)},
            one_for_each_row(outer, n, inner), x, mean, gy, gx);
}

template <class T>
void add_up(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale, bool add,
            const T* x, T* y) {
  run<T, T>(outer, n, inner, scale, add, x, nullptr, y);
}

template <class X, class T>
void column_sums(std::int64_t rows, std::int64_t cols, const X* x, T* y) {
  run<X, T>(1, rows, cols, 1, false, x, nullptr, y);
}

template void column_sums(std::int64_t, std::int64_t, const double*, float*);
#define INSTANTIATE(T)                                                                             \
  template void sum(std::int64_t, std::int64_t, std::int64_t, double, const T*, T*);               \
  template void var(std::int64_t, std::int64_t, std::int64_t, double, const T*, T*, T*);           \
  template void var_backward(std::int64_t, std::int64_t, std::int64_t, double, const T*, const T*, \
                             const T*, T*);                                                        \
  template void add_up(std::int64_t, std::int64_t, std::int64_t, double, bool, const T*, T*);      \
  template void column_sums(std::int64_t, std::int64_t, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
