#include <lipgrad/ops/kernels/softmax.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/softmax_backward_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/softmax_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void softmax_row(std::int64_t n, const T* y, const T* gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  V dot(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    dot = fma(get(y + i, count), get(gy + i, count), dot);
  }
  const V shift(sum_of_lanes(dot));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    put(get(y + i, count) * (get(gy + i, count) - shift), gx + i, count);
  }
}

template <class T>
void softmax_column(std::int64_t n, std::int64_t ld, std::int64_t count, const T* y, const T* gy,
                    T* gx) {
  using V = Simd<T>;
  V dot(0.0);
  for (std::int64_t i = 0; i < n * ld; i += ld)
    dot = fma(get(y + i, count), get(gy + i, count), dot);
  for (std::int64_t i = 0; i < n * ld; i += ld)
    put(get(y + i, count) * (get(gy + i, count) - dot), gx + i, count);
}

// What log_softmax left out: entries of -inf. A row it set to 0 shows by probabilities that sum to
// more than 1 (or by being a single entry, whose gradient is 0 anyway).
constexpr double dead_sum = 1.5;

template <class T>
void log_softmax_row(std::int64_t n, const T* y, const T* gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V out(-std::numeric_limits<double>::infinity());
  V total(0.0), mass(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V s = get(y + i, count, out), p = exp(s);
    put(p, gx + i, count);
    mass = mass + p;
    total = total + select(s == out, V(0.0), get(gy + i, count));
  }
  const bool dead = sum_of_lanes(mass) > static_cast<T>(dead_sum);
  const V sum(sum_of_lanes(total));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V g = get(gy + i, count) - get(gx + i, count) * sum;
    put(dead ? V(0.0) : select(get(y + i, count) == out, V(0.0), g), gx + i, count);
  }
}

template <class T>
void log_softmax_column(std::int64_t n, std::int64_t ld, std::int64_t count, const T* y,
                        const T* gy, T* gx) {
  using V = Simd<T>;
  const V out(-std::numeric_limits<double>::infinity());
  V sum(0.0), mass(0.0);
  for (std::int64_t i = 0; i < n * ld; i += ld) {
    const V s = get(y + i, count), p = exp(s);
    put(p, gx + i, count);
    mass = mass + p;
    sum = sum + select(s == out, V(0.0), get(gy + i, count));
  }
  const auto dead = mass > V(dead_sum);
  for (std::int64_t i = 0; i < n * ld; i += ld) {
    const V g = get(gy + i, count) - get(gx + i, count) * sum;
    put(select(dead || get(y + i, count) == out, V(0.0), g), gx + i, count);
  }
}

template <bool kLog, class T>
void run_rows(std::int64_t rows, std::int64_t n, const T* y, const T* gy, T* gx) {
  for (std::int64_t i = 0; i < rows * n; i += n) {
    if constexpr (kLog) {
      log_softmax_row(n, y + i, gy + i, gx + i);
    } else {
      softmax_row(n, y + i, gy + i, gx + i);
    }
  }
}

template <bool kLog, class T>
void run_columns(std::int64_t n, std::int64_t inner, std::int64_t width, const T* y, const T* gy,
                 T* gx) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t c = 0; c < width; c += lanes) {
    const std::int64_t count = std::min(lanes, width - c);
    if constexpr (kLog) {
      log_softmax_column(n, inner, count, y + c, gy + c, gx + c);
    } else {
      softmax_column(n, inner, count, y + c, gy + c, gx + c);
    }
  }
}

}  // namespace

SoftmaxBackwardRows<float> softmax_backward_f32(bool log) {
  if (log) return {run_rows<true, float>, run_columns<true, float>};
  return {run_rows<false, float>, run_columns<false, float>};
}
SoftmaxBackwardRows<double> softmax_backward_f64(bool log) {
  if (log) return {run_rows<true, double>, run_columns<true, double>};
  return {run_rows<false, double>, run_columns<false, double>};
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(softmax_backward_f32);
HWY_EXPORT(softmax_backward_f64);

namespace {

SoftmaxBackwardRows<float> rows_of(bool log, float) {
  return HWY_DYNAMIC_DISPATCH(softmax_backward_f32)(log);
}
SoftmaxBackwardRows<double> rows_of(bool log, double) {
  return HWY_DYNAMIC_DISPATCH(softmax_backward_f64)(log);
}

}  // namespace

template <class T>
void softmax_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* y,
                      const T* gy, T* gx) {
  run_softmax_backward(rows_of(false, T()), outer, n, inner, y, gy, gx);
}
template <class T>
void log_softmax_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* y,
                          const T* gy, T* gx) {
  run_softmax_backward(rows_of(true, T()), outer, n, inner, y, gy, gx);
}

#define INSTANTIATE(T)                                                                             \
  template void softmax_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*,     \
                                 T*);                                                              \
  template void log_softmax_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, \
                                     T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
