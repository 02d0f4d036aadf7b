// The reductions that begin with the largest element: max and logsumexp.

#include <lipgrad/ops/kernels/reduce.h>
#include <lipgrad/ops/kernels/scalar_math.h>

#include "broadcast.cuh"
#include "reduction.cuh"

namespace lipgrad::cuda {
namespace {

template <class T>
struct Largest {
  T value;
  std::int64_t index;  // -1: of no elements
};
template <class T>
__device__ __forceinline__ Largest<T> shuffle_xor(const Largest<T>& a, int step) {
  return {__shfl_xor_sync(kAllLanes, a.value, step), __shfl_xor_sync(kAllLanes, a.index, step)};
}

template <class T>
struct MaxTerms {
  using Value = T;
  using State = Largest<T>;
  const T* x;
  T* y;
  std::int64_t* index;

  __device__ const T* data() const { return x; }
  __device__ State none() const { return {T(0), -1}; }
  template <int size>
  __device__ __forceinline__ void take(State& state, const T (&v)[size], int count, std::int64_t i,
                                       std::int64_t step, std::int64_t) const {
#pragma unroll
    for (int k = 0; k < size; ++k)
      if (k < count) state = merge(state, {v[k], i + k * step});
  }
  __device__ static State merge(const State& a, const State& b) {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (a.value > b.value) return a;
    if (b.value > a.value) return b;
    return a.index < b.index ? a : b;
  }
  __device__ void finish(const State& state, std::int64_t slot) const {
    y[slot] = state.value;
    index[slot] = state.index;
  }
};

// sum exp(x - top). Where top is not finite it is the result, and the sum is 0.
template <class T>
struct ExpSum {
  T top;
  double sum;
};
template <class T>
__device__ __forceinline__ ExpSum<T> shuffle_xor(const ExpSum<T>& a, int step) {
  return {__shfl_xor_sync(kAllLanes, a.top, step), __shfl_xor_sync(kAllLanes, a.sum, step)};
}

template <class T>
__device__ bool is_finite(T x) {
  return x - x == T(0);
}

template <class T>
struct LogSumExpTerms {
  using Value = T;
  using State = ExpSum<T>;
  const T* x;
  T* y;

  __device__ const T* data() const { return x; }
  __device__ State none() const { return {-T(INFINITY), 0}; }
  template <int size>
  __device__ __forceinline__ void take(State& state, const T (&v)[size], int count, std::int64_t,
                                       std::int64_t, std::int64_t) const {
    T top = state.top;
#pragma unroll
    for (int k = 0; k < size; ++k)
      if (k < count) top = scalar::max(top, v[k]);
    T sum = 0;
    if (is_finite(top)) {
#pragma unroll
      for (int k = 0; k < size; ++k)
        if (k < count) sum += scalar::exp(v[k] - top);
      if (top > state.top) state.sum *= scalar::exp(state.top - top);
    }
    state.top = top;
    state.sum += sum;
  }
  __device__ static State merge(const State& a, const State& b) {
    const T top = scalar::max(a.top, b.top);
    if (!is_finite(top)) return {top, 0};
    return {top, a.sum * scalar::exp(a.top - top) + b.sum * scalar::exp(b.top - top)};
  }
  __device__ void finish(const State& state, std::int64_t slot) const {
    y[slot] = is_finite(state.top) ? state.top + static_cast<T>(scalar::log(state.sum)) : state.top;
  }
};

struct LogSumExpBackward {
  template <class T>
  __device__ T operator()(T x, T y, T gy) const {
    return y == -T(INFINITY) ? T(0) : gy * scalar::exp(x - y);
  }
};

// gx(outer, n, inner) = gy(outer, inner) at index(outer, inner), 0 elsewhere: one element a thread.
template <class T>
__global__ void max_backward_kernel(std::int64_t count, std::int64_t n, std::int64_t inner,
                                    const std::int64_t* index, const T* gy, T* gx) {
  const std::int64_t at = thread_index();
  if (at >= count) return;
  std::int64_t slot, i;
  if (count <= 0x7fffffff) {
    const unsigned row = static_cast<unsigned>(at) / static_cast<unsigned>(inner);
    const unsigned outer = row / static_cast<unsigned>(n);
    i = row - outer * static_cast<unsigned>(n);
    slot = outer * inner + (at - row * inner);
  } else {
    const std::int64_t row = at / inner, outer = row / n;
    i = row - outer * n;
    slot = outer * inner + (at - row * inner);
  }
  gx[at] = index[slot] == i ? gy[slot] : T(0);
}

}  // namespace

template <class T>
void max(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x, T* y,
         std::int64_t* index) {
  reduce(MaxTerms<T>{x, y, index}, outer, n, inner, x);
}

template <class T>
void max_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const std::int64_t* index,
                  const T* gy, T* gx) {
  const std::int64_t count = outer * n * inner;
  launch(max_backward_kernel<T>, blocks_for(count, kMapThreads), kMapThreads, 0, count, n, inner,
         index, gy, gx);
}

template <class T>
void logsumexp(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x, T* y) {
  reduce(LogSumExpTerms<T>{x, y}, outer, n, inner, x);
}

template <class T>
void logsumexp_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
                        const T* y, const T* gy, T* gx) {
  broadcast(LogSumExpBackward{}, one_for_each_row(outer, n, inner), x, y, gy, gx);
}

#define INSTANTIATE(T)                                                                           \
  template void max(std::int64_t, std::int64_t, std::int64_t, const T*, T*, std::int64_t*);      \
  template void max_backward(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,      \
                             const T*, T*);                                                      \
  template void logsumexp(std::int64_t, std::int64_t, std::int64_t, const T*, T*);               \
  template void logsumexp_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, \
                                   const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
