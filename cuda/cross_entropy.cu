#include <lipgrad/ops/kernels/loss.h>
#include <lipgrad/ops/kernels/scalar_math.h>

#include "loss_rows.cuh"
#include "total.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = kLossThreads;

struct Min {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

// Labels of either type.
__device__ inline std::int64_t label_of(const void* labels, bool wide, std::int64_t row) {
  return wide ? static_cast<const std::int64_t*>(labels)[row]
              : static_cast<std::int64_t>(static_cast<const std::int32_t*>(labels)[row]);
}

// The row and the label of the i-th row that counts; false when there is none, or one is at fault,
// which is reported once.
struct Chosen {
  std::int64_t row = 0, label = 0;
  bool valid = false;
};
__device__ inline Chosen chosen(std::int64_t i, std::int64_t total, std::int64_t count,
                                std::int64_t cols, const std::int64_t* rows, const void* labels,
                                bool wide, bool tell, Faults* faults) {
  Chosen c;
  if (i >= count) return c;
  c.row = rows ? rows[i] : i;
  if (c.row < 0 || c.row >= total) {
    if (tell) report(faults, Fault::row, i, total);
    return c;
  }
  c.label = label_of(labels, wide, c.row);
  c.valid = c.label >= 0 && c.label < cols;
  if (!c.valid && tell) report(faults, Fault::label, c.row, cols);
  return c;
}

template <class T>
__device__ T lowest() {
  return -static_cast<T>(HUGE_VAL);
}

// log(sum(exp(x))) of a row, in one reading: each thread keeps the largest element so far and the
// sum of exponentials relative to it. NaN for a row of -inf, which has no softmax, and where none
// is valid. also(pack, left) sees every pack. In every thread; all threads of the block call it.
template <int width, class T, class Also>
__device__ T log_sum_exp(const LossRows<width>& place, bool valid, std::int64_t cols, bool vector,
                         const T* from, Also also) {
  constexpr int size = Pack<T>::size;
  T top = lowest<T>();
  double sum = 0;
  if (valid) {
    for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
      const Pack<T> pack = load(from + at, vector, cols - at, lowest<T>());
      const T before = top;
#pragma unroll
      for (int k = 0; k < size; ++k) top = Max()(top, pack.v[k]);
      also(pack, cols - at);
      if (top == lowest<T>()) continue;  // nothing but -inf so far
      T part = T(0);
#pragma unroll
      for (int k = 0; k < size; ++k) part += scalar::exp(pack.v[k] - top);
      sum = sum * static_cast<double>(scalar::exp(before - top)) + static_cast<double>(part);
    }
  }
  const T highest = LossRows<width>::reduce(top, Max(), lowest<T>());
  sum = top == lowest<T>() ? 0.0 : sum * static_cast<double>(scalar::exp(top - highest));
  sum = LossRows<width>::reduce(sum, Sum(), 0.0);
  return highest == lowest<T>() ? highest - highest : highest + scalar::log(static_cast<T>(sum));
}

// x: (total, cols), rows and lse: (count), labels: (total), partial: (blocks).
template <int width, class T>
__global__ void cross_entropy_kernel(std::int64_t total, std::int64_t count, std::int64_t cols,
                                     bool vector, const T* x, const std::int64_t* rows,
                                     const void* labels, bool wide, double smoothing, T* lse,
                                     double* partial, Faults* faults) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  const Chosen c =
      chosen(place.row, total, count, cols, rows, labels, wide, place.lane == 0, faults);
  const T* from = x + c.row * cols;
  double plain = 0;
  const T level =
      log_sum_exp(place, c.valid, cols, vector, from, [&](const Pack<T>& pack, std::int64_t left) {
        if (smoothing == 0) return;
#pragma unroll
        for (int k = 0; k < size; ++k)
          if (k < left) plain += static_cast<double>(pack.v[k]);
      });
  if (smoothing != 0) plain = LossRows<width>::reduce(plain, Sum(), 0.0);
  double term = 0;
  if (place.lane == 0 && place.row < count) {
    lse[place.row] = c.valid ? level : T(0);
    if (c.valid) {
      const double high = static_cast<double>(level);
      term = (1 - smoothing) * (high - static_cast<double>(from[c.label]));
      if (smoothing != 0) term += smoothing * (high - plain / static_cast<double>(cols));
    }
  }
  term = block_reduce<kThreads>(term, Sum(), 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = term;
}

// x, gx: (total, cols), lse: (count). share: 1 / count.
template <int width, class T>
__global__ void cross_entropy_backward_kernel(std::int64_t total, std::int64_t count,
                                              std::int64_t cols, double share, bool vector,
                                              const T* x, const unsigned* times,
                                              const unsigned long long* last, const void* labels,
                                              bool wide, double smoothing, const T* lse,
                                              const T* gy, T* gx) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  if (place.row >= total) return;
  const std::int64_t label = label_of(labels, wide, place.row);
  std::int64_t k = times ? times[place.row] : place.row < count;
  if (label < 0 || label >= cols) k = 0;
  const T weight = static_cast<T>(static_cast<double>(*gy) * share * static_cast<double>(k));
  const T rest = static_cast<T>(smoothing / static_cast<double>(cols));
  const T level = k ? lse[last ? static_cast<std::int64_t>(last[place.row]) : place.row] : T(0);
  for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
    const std::int64_t left = cols - at;
    Pack<T> g;
#pragma unroll
    for (int j = 0; j < size; ++j) g.v[j] = T(0);
    if (k) {
      const Pack<T> pack = load(x + place.row * cols + at, vector, left, T(0));
#pragma unroll
      for (int j = 0; j < size; ++j) {
        g.v[j] = weight * (scalar::exp(pack.v[j] - level) - rest);
        if (at + j == label) g.v[j] -= weight * static_cast<T>(1 - smoothing);
      }
    }
    store(gx + place.row * cols + at, vector, left, g);
  }
}

// x, t: (total, cols), lse: (total), partial: (blocks).
template <int width, class T>
__global__ void soft_cross_entropy_kernel(std::int64_t total, std::int64_t cols, bool vector,
                                          const T* x, const T* t, T* lse, double* partial) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  const bool valid = place.row < total;
  const std::int64_t begin = valid ? place.row * cols : 0;
  const T level =
      log_sum_exp(place, valid, cols, vector, x + begin, [](const Pack<T>&, std::int64_t) {});
  double term = 0;
  if (valid) {
    if (place.lane == 0) lse[place.row] = level;
    for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
      const std::int64_t left = cols - at;
      const Pack<T> pack = load(x + begin + at, vector, left, T(0)),
                    target = load(t + begin + at, vector, left, T(0));
      T part = T(0);
#pragma unroll
      for (int k = 0; k < size; ++k)
        if (k < left) part += target.v[k] * (level - pack.v[k]);
      term += static_cast<double>(part);
    }
  }
  term = block_reduce<kThreads>(term, Sum(), 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = term;
}

// x, t, gx, gt: (total, cols), lse: (total). gx and gt may be null. share: 1 / total.
template <int width, class T>
__global__ void soft_cross_entropy_backward_kernel(std::int64_t total, std::int64_t cols,
                                                   double share, bool vector, const T* x,
                                                   const T* t, const T* lse, const T* gy, T* gx,
                                                   T* gt) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  const bool valid = place.row < total;
  const std::int64_t begin = valid ? place.row * cols : 0;
  T sum = T(0);
  if (valid) {
    for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
      const Pack<T> target = load(t + begin + at, vector, cols - at, T(0));
#pragma unroll
      for (int k = 0; k < size; ++k) sum += target.v[k];
    }
  }
  sum = LossRows<width>::reduce(sum, Sum(), T(0));
  if (!valid) return;
  const T scale = static_cast<T>(static_cast<double>(*gy) * share), level = lse[place.row];
  for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
    const std::int64_t left = cols - at;
    Pack<T> a = load(x + begin + at, vector, left, T(0)),
            b = load(t + begin + at, vector, left, T(0));
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const T x_level = a.v[k] - level;
      a.v[k] = scale * (scalar::exp(x_level) * sum - b.v[k]);
      b.v[k] = -scale * x_level;
    }
    if (gx) store(gx + begin + at, vector, left, a);
    if (gt) store(gt + begin + at, vector, left, b);
  }
}

// x: (total, cols), rows: (count), labels: (total).
template <int width, class T>
__global__ void count_correct_kernel(std::int64_t total, std::int64_t count, std::int64_t cols,
                                     bool vector, const T* x, const std::int64_t* rows,
                                     const void* labels, bool wide, unsigned long long* correct,
                                     Faults* faults) {
  constexpr int size = Pack<T>::size;
  const LossRows<width> place;
  const Chosen c =
      chosen(place.row, total, count, cols, rows, labels, wide, place.lane == 0, faults);
  T best = lowest<T>();
  std::int64_t index = cols;  // of `best`, the first of equal ones; none yet
  if (c.valid) {
    for (std::int64_t at = place.lane * size; at < cols; at += width * size) {
      const Pack<T> pack = load(x + c.row * cols + at, vector, cols - at, lowest<T>());
#pragma unroll
      for (int k = 0; k < size; ++k) {
        const T value = pack.v[k];
        const bool above = value > best || (value != value && best == best);
        if (above || (index == cols && value == best)) {
          best = value;
          index = at + k;
        }
      }
    }
  }
  const T highest = LossRows<width>::reduce(best, Max(), lowest<T>());
  const bool stands = best == highest || (best != best && highest != highest);
  index = LossRows<width>::reduce(stands ? index : cols, Min(), cols);
  const int hit = place.lane == 0 && c.valid && index == c.label;
  const int hits = block_reduce<kThreads>(hit, Sum(), 0);
  if (threadIdx.x == 0 && hits > 0) atomicAdd(correct, static_cast<unsigned long long>(hits));
}

}  // namespace

template <class T, class Label>
void cross_entropy(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                   const std::int64_t* rows, const Label* labels, double smoothing, T* lse,
                   T* loss) {
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    const unsigned blocks = blocks_for(count, LossRows<width>::per_block);
    const Scratch<double> partial(blocks);
    launch(cross_entropy_kernel<width, T>, blocks, kThreads, 0, total, count, cols,
           in_packs(cols, x), x, rows, static_cast<const void*>(labels), sizeof(Label) == 8,
           smoothing, lse, partial.get(), faults());
    mean_of(blocks, partial.get(), static_cast<double>(count), loss);
  });
}

template <class T, class Label>
void cross_entropy_backward(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                            const std::int64_t* rows, const Label* labels, double smoothing,
                            const T* lse, const T* gy, T* gx) {
  const Scratch<unsigned> times(rows ? total : 0);
  const Scratch<unsigned long long> last(rows ? total : 0);
  if (rows && total > 0) {
    const auto n = static_cast<std::size_t>(total);
    check(cudaMemsetAsync(times.get(), 0, n * sizeof(unsigned), stream()), "cudaMemset");
    check(cudaMemsetAsync(last.get(), 0, n * sizeof(unsigned long long), stream()), "cudaMemset");
    launch(times_kernel, blocks_for(count, 256), 256, 0, total, count, rows, times.get(),
           last.get());
  }
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    launch(cross_entropy_backward_kernel<width, T>, blocks_for(total, LossRows<width>::per_block),
           kThreads, 0, total, count, cols, 1.0 / static_cast<double>(count), in_packs(cols, x, gx),
           x, static_cast<const unsigned*>(rows ? times.get() : nullptr),
           static_cast<const unsigned long long*>(rows ? last.get() : nullptr),
           static_cast<const void*>(labels), sizeof(Label) == 8, smoothing, lse, gy, gx);
  });
}

template <class T>
void soft_cross_entropy(std::int64_t total, std::int64_t cols, const T* x, const T* t, T* lse,
                        T* loss) {
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    const unsigned blocks = blocks_for(total, LossRows<width>::per_block);
    const Scratch<double> partial(blocks);
    launch(soft_cross_entropy_kernel<width, T>, blocks, kThreads, 0, total, cols,
           in_packs(cols, x, t), x, t, lse, partial.get());
    mean_of(blocks, partial.get(), static_cast<double>(total), loss);
  });
}

template <class T>
void soft_cross_entropy_backward(std::int64_t total, std::int64_t cols, const T* x, const T* t,
                                 const T* lse, const T* gy, T* gx, T* gt) {
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    launch(soft_cross_entropy_backward_kernel<width, T>,
           blocks_for(total, LossRows<width>::per_block), kThreads, 0, total, cols,
           1.0 / static_cast<double>(total), in_packs(cols, x, t) && in_packs(cols, gx, gt), x, t,
           lse, gy, gx, gt);
  });
}

template <class T, class Label>
void count_correct(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                   const std::int64_t* rows, const Label* labels, std::int64_t* correct) {
  check(cudaMemsetAsync(correct, 0, sizeof(std::int64_t), stream()), "cudaMemset");
  visit_width(cols, [&](auto w) {
    constexpr int width = decltype(w)::value;
    launch(count_correct_kernel<width, T>, blocks_for(count, LossRows<width>::per_block), kThreads,
           0, total, count, cols, in_packs(cols, x), x, rows, static_cast<const void*>(labels),
           sizeof(Label) == 8, reinterpret_cast<unsigned long long*>(correct), faults());
  });
}

#define INSTANTIATE(T, Label)                                                               \
  template void cross_entropy(std::int64_t, std::int64_t, std::int64_t, const T*,           \
                              const std::int64_t*, const Label*, double, T*, T*);           \
  template void cross_entropy_backward(std::int64_t, std::int64_t, std::int64_t, const T*,  \
                                       const std::int64_t*, const Label*, double, const T*, \
                                       const T*, T*);                                       \
  template void count_correct(std::int64_t, std::int64_t, std::int64_t, const T*,           \
                              const std::int64_t*, const Label*, std::int64_t*);
INSTANTIATE(float, std::int32_t)
INSTANTIATE(float, std::int64_t)
INSTANTIATE(double, std::int32_t)
INSTANTIATE(double, std::int64_t)
#undef INSTANTIATE
#define INSTANTIATE(T)                                                                      \
  template void soft_cross_entropy(std::int64_t, std::int64_t, const T*, const T*, T*, T*); \
  template void soft_cross_entropy_backward(std::int64_t, std::int64_t, const T*, const T*, \
                                            const T*, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
