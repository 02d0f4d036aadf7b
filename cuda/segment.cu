#include <lipgrad/graph/kernels/segment.h>

#include "edge_rows.cuh"

namespace lipgrad::cuda {
namespace {

template <class T>
struct SegmentSum : SumTerms<T> {
  std::int64_t columns;
  const std::int64_t* order;
  bool mean;
  const T* x;
  T* y;

  __device__ __forceinline__ T load(std::int64_t, std::int64_t, std::int64_t e,
                                    std::int64_t column) const {
    return x[(order != nullptr ? order[e] : e) * columns + column];
  }
  __device__ __forceinline__ void finish(std::int64_t row, std::int64_t count, std::int64_t column,
                                         double sum) const {
    y[row * columns + column] =
        static_cast<T>(mean && count > 0 ? sum / static_cast<double>(count) : sum);
  }
};

template <class T>
struct LogSumExp : ExponentialTerms<T> {
  T* y;

  LogSumExp(std::int64_t features, const T* from, T* to)
      : ExponentialTerms<T>{features, from}, y(to) {}
  __device__ __forceinline__ void finish(std::int64_t row, std::int64_t count, std::int64_t column,
                                         const Exponentials<T>& state) const {
    y[row * this->columns + column] =
        count > 0 ? static_cast<T>(log(state.sum) + double(state.top)) : T(0);
  }
};

template <class T>
struct Spread {
  std::int64_t columns;
  bool mean;
  const T* x;
  T* y;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t count, std::int64_t e,
                                             std::int64_t column) const {
    const T value = x[row * columns + column];
    y[e * columns + column] = mean ? value / static_cast<T>(count) : value;
  }
};

template <class T>
struct MaximumGradient {
  std::int64_t columns;
  const std::int64_t* argmax;
  const T* gy;
  T* gx;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t, std::int64_t e,
                                             std::int64_t column) const {
    const std::int64_t at = row * columns + column;
    gx[e * columns + column] = argmax[at] == e ? gy[at] : T(0);
  }
};

template <class T>
struct LogSumExpGradient {
  std::int64_t columns;
  const T *x, *y, *gy;
  T* gx;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t, std::int64_t e,
                                             std::int64_t column) const {
    const std::int64_t at = row * columns + column, here = e * columns + column;
    const bool none = y[at] == -Exponentials<T>::infinity();
    gx[here] = none ? T(0) : gy[at] * scalar::exp(x[here] - y[at]);
  }
};

}  // namespace

template <class T>
void segment_sum(std::int64_t segments, std::int64_t entries, std::int64_t features,
                 const std::int64_t* offsets, const std::int64_t* order, bool mean, const T* x,
                 T* y) {
  reduce_rows(Csr{segments, entries, offsets}, features,
              SegmentSum<T>{{}, features, order, mean, x, y});
}

template <class T>
void segment_max(std::int64_t segments, std::int64_t entries, std::int64_t features,
                 const std::int64_t* offsets, const T* x, T* y, std::int64_t* argmax) {
  reduce_rows(Csr{segments, entries, offsets}, features,
              MaximumTerms<T, std::int64_t>{features, nullptr, x, y, argmax});
}

template <class T>
void segment_logsumexp(std::int64_t segments, std::int64_t entries, std::int64_t features,
                       const std::int64_t* offsets, const T* x, T* y) {
  reduce_rows(Csr{segments, entries, offsets}, features, LogSumExp<T>(features, x, y));
}

template <class T>
void segment_spread(std::int64_t segments, std::int64_t entries, std::int64_t features,
                    const std::int64_t* offsets, bool mean, const T* x, T* y) {
  each_edge(Csr{segments, entries, offsets}, features, Spread<T>{features, mean, x, y});
}

template <class T>
void segment_max_backward(std::int64_t segments, std::int64_t entries, std::int64_t features,
                          const std::int64_t* offsets, const std::int64_t* argmax, const T* gy,
                          T* gx) {
  each_edge(Csr{segments, entries, offsets}, features,
            MaximumGradient<T>{features, argmax, gy, gx});
}

template <class T>
void segment_logsumexp_backward(std::int64_t segments, std::int64_t entries, std::int64_t features,
                                const std::int64_t* offsets, const T* x, const T* y, const T* gy,
                                T* gx) {
  each_edge(Csr{segments, entries, offsets}, features,
            LogSumExpGradient<T>{features, x, y, gy, gx});
}

#define INSTANTIATE(T)                                                                           \
  template void segment_sum(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,       \
                            const std::int64_t*, bool, const T*, T*);                            \
  template void segment_max(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,       \
                            const T*, T*, std::int64_t*);                                        \
  template void segment_logsumexp(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                                  const T*, T*);                                                 \
  template void segment_spread(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,    \
                               bool, const T*, T*);                                              \
  template void segment_max_backward(std::int64_t, std::int64_t, std::int64_t,                   \
                                     const std::int64_t*, const std::int64_t*, const T*, T*);    \
  template void segment_logsumexp_backward(std::int64_t, std::int64_t, std::int64_t,             \
                                           const std::int64_t*, const T*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
