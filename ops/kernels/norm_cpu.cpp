#include <lipgrad/ops/kernels/norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/norm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/norm_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// One row of layer_norm; with mean null, of rms_norm.
template <class T>
void forward_row(std::int64_t n, double eps, const T* x, const T* weight, const T* bias, T* y,
                 T* mean, T* rstd) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  V centre(0.0);
  if (mean) {
    V total(0.0);
    for (std::int64_t i = 0; i < n; i += lanes) total = total + get(x + i, std::min(lanes, n - i));
    *mean = sum_of_lanes(total) / static_cast<T>(n);
    centre = V(*mean);
  }
  V squares(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const V d = get(x + i, std::min(lanes, n - i), centre) - centre;
    squares = fma(d, d, squares);
  }
  *rstd = static_cast<T>(1 / std::sqrt(double(sum_of_lanes(squares)) / n + eps));
  const V scale(*rstd);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    V v = (get(x + i, count) - centre) * scale;
    if (weight) v = v * get(weight + i, count);
    if (bias) v = v + get(bias + i, count);
    put(v, y + i, count);
  }
}

template <class T>
void forward_rows(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight,
                  const T* bias, T* y, T* mean, T* rstd) {
  for (std::int64_t r = 0; r < rows; ++r)
    forward_row(cols, eps, x + r * cols, weight, bias, y + r * cols, mean ? mean + r : nullptr,
                rstd + r);
}

// gx of a row: rstd (h - mean(h) - xhat mean(h xhat)) with h = gy weight (mean(h) only when
// centred).
template <class T>
void gradient_row(std::int64_t n, const T* x, const T* weight, const T* mean, T rstd, const T* gy,
                  T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V centre(mean ? *mean : T(0)), scale(rstd);
  V sum(0.0), dot(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    V h = get(gy + i, count);
    if (weight) h = h * get(weight + i, count);
    sum = sum + h;
    dot = fma(h, get(x + i, count, centre) - centre, dot);
  }
  const V shift(mean ? sum_of_lanes(sum) / static_cast<T>(n) : T(0));
  const V along(sum_of_lanes(dot) * rstd / static_cast<T>(n));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    V h = get(gy + i, count);
    if (weight) h = h * get(weight + i, count);
    const V xhat = (get(x + i, count) - centre) * scale;
    put(scale * (h - shift - xhat * along), gx + i, count);
  }
}

// gweight += gy xhat, gbias += gy for a row.
template <class T>
void add_row(std::int64_t n, const T* x, const T* mean, T rstd, const T* gy, T* gweight, T* gbias) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V centre(mean ? *mean : T(0)), scale(rstd);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V g = get(gy + i, count);
    if (gweight) {
      const V xhat = (get(x + i, count) - centre) * scale;
      put(fma(g, xhat, get(gweight + i, count)), gweight + i, count);
    }
    if (gbias) put(get(gbias + i, count) + g, gbias + i, count);
  }
}

template <class T>
void backward_rows(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* mean,
                   const T* rstd, const T* gy, T* gx, T* gweight, T* gbias) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* centre = mean ? mean + r : nullptr;
    // First: gx may be gy.
    if (gweight || gbias)
      add_row(cols, x + r * cols, centre, rstd[r], gy + r * cols, gweight, gbias);
    if (gx) gradient_row(cols, x + r * cols, weight, centre, rstd[r], gy + r * cols, gx + r * cols);
  }
}

template <class T>
NormRows<T> table() {
  return {forward_rows<T>, backward_rows<T>};
}

}  // namespace

NormRows<float> norm_rows_f32() { return table<float>(); }
NormRows<double> norm_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(norm_rows_f32);
HWY_EXPORT(norm_rows_f64);

namespace {

NormRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(norm_rows_f32)(); }
NormRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(norm_rows_f64)(); }

// out(cols) = the sum over blocks of partial(blocks, cols), in order.
template <class T>
void add_blocks(std::int64_t blocks, std::int64_t cols, const std::vector<T>& partial, T* out) {
  for (std::int64_t c = 0; c < cols; ++c) {
    double sum = 0;
    for (std::int64_t b = 0; b < blocks; ++b) sum += partial[b * cols + c];
    out[c] = static_cast<T>(sum);
  }
}

}  // namespace

template <class T>
void layer_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight,
                const T* bias, T* y, T* mean, T* rstd) {
  const NormRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    f.forward(end - begin, cols, eps, x + begin * cols, weight, bias, y + begin * cols,
              mean + begin, rstd + begin);
  });
}

template <class T>
void rms_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* weight, T* y,
              T* rstd) {
  const NormRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    f.forward(end - begin, cols, eps, x + begin * cols, weight, nullptr, y + begin * cols, nullptr,
              rstd + begin);
  });
}

template <class T>
void norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* mean,
                   const T* rstd, const T* gy, T* gx, T* gweight, T* gbias) {
  const NormRows<T> f = rows_of(T());
  // Enough blocks for any number of threads, few enough that their partial sums are small.
  const std::int64_t grain = std::max(rows_per_block(cheap_grain, cols), (rows + 255) / 256);
  const std::int64_t blocks = (rows + grain - 1) / grain;
  std::vector<T> weights(gweight ? blocks * cols : 0), biases(gbias ? blocks * cols : 0);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t b = begin / grain, at = begin * cols;
    f.backward(end - begin, cols, x + at, weight, mean ? mean + begin : nullptr, rstd + begin,
               gy + at, gx ? gx + at : nullptr, gweight ? weights.data() + b * cols : nullptr,
               gbias ? biases.data() + b * cols : nullptr);
  });
  if (gweight) add_blocks(blocks, cols, weights, gweight);
  if (gbias) add_blocks(blocks, cols, biases, gbias);
}

#define INSTANTIATE(T)                                                                            \
  template void layer_norm(std::int64_t, std::int64_t, double, const T*, const T*, const T*, T*,  \
                           T*, T*);                                                               \
  template void rms_norm(std::int64_t, std::int64_t, double, const T*, const T*, T*, T*);         \
  template void norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*, const T*, \
                              const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
