#include <lipgrad/ops/kernels/functors.h>
#include <lipgrad/ops/kernels/loss.h>

#include "loss_rows.cuh"
#include "total.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = kLossThreads;

// x, t: (total, cols), rows: (count). sums, terms: (blocks), of the known terms and their number.
template <int width, class T>
__global__ void bce_rows_kernel(std::int64_t total, std::int64_t count, std::int64_t cols,
                                bool vector, const T* x, const std::int64_t* rows, const T* t,
                                bool skip_missing, double* sums, double* terms, Faults* faults) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  std::int64_t row = -1;
  if (place.row < count) {
    row = rows ? rows[place.row] : place.row;
    if (row < 0 || row >= total) {
      if (place.lane == 0) report(faults, Fault::row, place.row, total);
      row = -1;
    }
  }
  double sum = 0;
  std::int64_t known = 0;
  if (row >= 0) {
    for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
      const std::int64_t left = cols - at;
      const Pack<T> a = load(x + row * cols + at, vector, left, T(0)),
                    b = load(t + row * cols + at, vector, left, T(0));
      T part = T(0);
#pragma unroll
      for (int k = 0; k < size; ++k) {
        if (k >= left || (skip_missing && b.v[k] != b.v[k])) continue;
        part += scalar::max(a.v[k], T(0)) - a.v[k] * b.v[k] +
                scalar::log1p_unit(scalar::exp(-scalar::abs(a.v[k])));
        ++known;
      }
      sum += static_cast<double>(part);
    }
  }
  sum = block_reduce<kThreads>(sum, Sum(), 0.0);
  const double number = block_reduce<kThreads>(static_cast<double>(known), Sum(), 0.0);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    terms[blockIdx.x] = number;
  }
}

template <class T>
__global__ void known_mean_kernel(const double* sum, const double* known, T* loss) {
  *loss = *known > 0 ? static_cast<T>(*sum / *known) : T(0);
}

// x, t, gx, gt: (total, cols); gx and gt may be null. times(total): null where each row counts
// once.
template <int width, class T>
__global__ void bce_rows_backward_kernel(std::int64_t total, std::int64_t cols, bool vector,
                                         const T* x, const unsigned* times, const T* t,
                                         bool skip_missing, const double* known, const T* gy, T* gx,
                                         T* gt) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  if (place.row >= total) return;
  const unsigned k = times ? times[place.row] : 1u;
  const T scale =
      static_cast<T>(*known > 0 ? static_cast<double>(*gy) / *known * static_cast<double>(k) : 0.0);
  for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
    const std::int64_t left = cols - at, start = place.row * cols + at;
    Pack<T> to_x, to_t;
#pragma unroll
    for (int j = 0; j < size; ++j) to_x.v[j] = to_t.v[j] = T(0);
    if (k > 0) {
      const Pack<T> a = load(x + start, vector, left, T(0)),
                    b = load(t + start, vector, left, T(0));
#pragma unroll
      for (int j = 0; j < size; ++j) {
        if (skip_missing && b.v[j] != b.v[j]) continue;
        T p, rest;
        scalar::logistic(a.v[j], p, rest);
        to_x.v[j] = scale * (p - b.v[j]);
        to_t.v[j] = -scale * a.v[j];
      }
    }
    if (gx) store(gx + start, vector, left, to_x);
    if (gt) store(gt + start, vector, left, to_t);
  }
}

}  // namespace

template <class T>
void bce_rows(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
              const std::int64_t* rows, const T* t, bool skip_missing, double* known, T* loss) {
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    const unsigned blocks = blocks_for(count, LossRows<width>::per_block);
    const Scratch<double> sums(blocks), terms(blocks), sum(1);
    launch(bce_rows_kernel<width, T>, blocks, kThreads, 0, total, count, cols, in_packs(cols, x, t),
           x, rows, t, skip_missing, sums.get(), terms.get(), faults());
    mean_of(blocks, sums.get(), 1.0, sum.get());
    mean_of(blocks, terms.get(), 1.0, known);
    launch(known_mean_kernel<T>, 1, 1, 0, static_cast<const double*>(sum.get()),
           static_cast<const double*>(known), loss);
  });
}

template <class T>
void bce_rows_backward(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                       const std::int64_t* rows, const T* t, bool skip_missing, const double* known,
                       const T* gy, T* gx, T* gt) {
  const Scratch<unsigned> times(rows ? total : 0);
  if (rows && total > 0) {
    check(cudaMemsetAsync(times.get(), 0, static_cast<std::size_t>(total) * sizeof(unsigned),
                          stream()),
          "cudaMemset");
    launch(times_kernel, blocks_for(count, 256), 256, 0, total, count, rows, times.get(),
           static_cast<unsigned long long*>(nullptr));
  }
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    launch(bce_rows_backward_kernel<width, T>, blocks_for(total, LossRows<width>::per_block),
           kThreads, 0, total, cols, in_packs(cols, x, t) && aligned(gx, gt), x,
           static_cast<const unsigned*>(rows ? times.get() : nullptr), t, skip_missing, known, gy,
           gx, gt);
  });
}

#define INSTANTIATE(T)                                                                            \
  template void bce_rows(std::int64_t, std::int64_t, std::int64_t, const T*, const std::int64_t*, \
                         const T*, bool, double*, T*);                                            \
  template void bce_rows_backward(std::int64_t, std::int64_t, std::int64_t, const T*,             \
                                  const std::int64_t*, const T*, bool, const double*, const T*,   \
                                  T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
