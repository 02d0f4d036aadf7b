#include <lipgrad/ops/kernels/functors.h>
#include <lipgrad/ops/kernels/loss.h>

#include "total.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 4096;  // terms of a block

struct Bce {
  template <class T>
  __device__ T operator()(T x, T t) const {
    return scalar::max(x, T(0)) - x * t + scalar::log1p_unit(scalar::exp(-scalar::abs(x)));
  }
};
struct SquaredError {
  template <class T>
  __device__ T operator()(T x, T t) const {
    return (x - t) * (x - t);
  }
};

// x, t: (n); partial: (blocks), the sums of f(x, t).
template <class F, class T>
__global__ void pair_sum_kernel(std::int64_t n, bool vector, const T* x, const T* t,
                                double* partial) {
  constexpr int size = Pack<T>::size;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kPiece;
  const std::int64_t end = begin + kPiece < n ? begin + kPiece : n;
  double sum = 0;
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * size; i < end;
       i += kThreads * size) {
    const std::int64_t left = end - i;
    const Pack<T> a = load(x + i, vector, left, T(0)), b = load(t + i, vector, left, T(0));
    T part = T(0);
#pragma unroll
    for (int k = 0; k < size; ++k)
      if (k < left) part += F()(a.v[k], b.v[k]);
    sum += static_cast<double>(part);
  }
  sum = block_reduce<kThreads>(sum, Sum(), 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class F, class T>
void pair_mean(std::int64_t n, const T* x, const T* t, T* loss) {
  const unsigned blocks = blocks_for(n, kPiece);
  const Scratch<double> partial(blocks);
  launch(pair_sum_kernel<F, T>, blocks, kThreads, 0, n, aligned(x, t), x, t, partial.get());
  mean_of(blocks, partial.get(), static_cast<double>(n), loss);
}

// The gradients of a term for x and t, given that of the mean over n; as on the CPU.
struct BceBackward {
  template <class T>
  __device__ void operator()(double scale, T x, T t, T& gx, T& gt) const {
    T s, c;
    scalar::logistic(x, s, c);
    gx = static_cast<T>(scale) * (s - t);
    gt = static_cast<T>(-scale) * x;
  }
};
struct SquaredErrorBackward {
  template <class T>
  __device__ void operator()(double scale, T x, T t, T& gx, T& gt) const {
    gx = static_cast<T>(2 * scale) * (x - t);
    gt = static_cast<T>(-2 * scale) * (x - t);
  }
};

// x, t, gx, gt: (n). gx and gt may be null. share: 1 / n.
template <class F, class T>
__global__ void pair_backward_kernel(std::int64_t n, double share, bool vector, const T* x,
                                     const T* t, const T* gy, T* gx, T* gt) {
  constexpr int size = Pack<T>::size;
  const std::int64_t i = thread_index() * size;
  if (i >= n) return;
  const std::int64_t left = n - i;
  const double scale = static_cast<double>(*gy) * share;
  Pack<T> a = load(x + i, vector, left, T(0)), b = load(t + i, vector, left, T(0));
#pragma unroll
  for (int k = 0; k < size; ++k) F()(scale, a.v[k], b.v[k], a.v[k], b.v[k]);
  if (gx) store(gx + i, vector, left, a);
  if (gt) store(gt + i, vector, left, b);
}

template <class F, class T>
void pair_backward(std::int64_t n, const T* x, const T* t, const T* gy, T* gx, T* gt) {
  launch(pair_backward_kernel<F, T>, blocks_for(n, kThreads * Pack<T>::size), kThreads, 0, n,
         1.0 / static_cast<double>(n), aligned(x, t, gx, gt), x, t, gy, gx, gt);
}

}  // namespace

template <class T>
void bce_with_logits(std::int64_t n, const T* x, const T* t, T* loss) {
  pair_mean<Bce>(n, x, t, loss);
}
template <class T>
void bce_with_logits_backward(std::int64_t n, const T* x, const T* t, const T* gy, T* gx, T* gt) {
  pair_backward<BceBackward>(n, x, t, gy, gx, gt);
}
template <class T>
void mse(std::int64_t n, const T* x, const T* t, T* loss) {
  pair_mean<SquaredError>(n, x, t, loss);
}
template <class T>
void mse_backward(std::int64_t n, const T* x, const T* t, const T* gy, T* gx, T* gt) {
  pair_backward<SquaredErrorBackward>(n, x, t, gy, gx, gt);
}

#define INSTANTIATE(T)                                                                        \
  template void bce_with_logits(std::int64_t, const T*, const T*, T*);                        \
  template void bce_with_logits_backward(std::int64_t, const T*, const T*, const T*, T*, T*); \
  template void mse(std::int64_t, const T*, const T*, T*);                                    \
  template void mse_backward(std::int64_t, const T*, const T*, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
