#include <lipgrad/graph/kernels/node_norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/node_norm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/graph/kernels/node_norm_rows.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

#include <lipgrad/ops/kernels/column_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// The sum of value(i, count) over a row: chains of 64 vectors, added in double.
template <class T, class F>
HWY_INLINE double sum_row(std::int64_t n, F value) {
  const std::int64_t lanes = Simd<T>::lanes();
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 64 * lanes) {
    const std::int64_t end = std::min(n, start + 64 * lanes);
    Simd<T> part(0.0);
    for (std::int64_t i = start; i < end; i += lanes)
      part = part + value(i, std::min(lanes, end - i));
    sum += static_cast<double>(sum_of_lanes(part));
  }
  return sum;
}

template <class T>
void forward(std::int64_t rows, std::int64_t cols, double eps, double power, const T* x, T* y,
             T* mean, T* scale) {
  const std::int64_t lanes = Simd<T>::lanes();
  const double n = static_cast<double>(cols);
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T* row = x;
    mean[r] = static_cast<T>(sum_row<T>(cols, [=](std::int64_t i, std::int64_t count)
                                                  HWY_ATTR { return get(row + i, count); }) /
                             n);
    const Simd<T> centre(static_cast<double>(mean[r]));
    const double squares = sum_row<T>(cols, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      const Simd<T> d = get(row + i, count, centre) - centre;
      return d * d;
    });
    scale[r] = static_cast<T>(std::pow(squares / n + eps, -0.5 * power));
    const Simd<T> s(static_cast<double>(scale[r]));
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      put(get(x + i, count) * s, y + i, count);
    }
  }
}

template <class T>
void backward(std::int64_t rows, std::int64_t cols, double power, const T* x, const T* mean,
              const T* scale, const T* gy, T* gx) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t r = 0; r < rows; ++r, x += cols, gy += cols, gx += cols) {
    const T *row = x, *g = gy;
    const double dot = sum_row<T>(cols, [=](std::int64_t i, std::int64_t count) HWY_ATTR {
      return get(row + i, count) * get(g + i, count);
    });
    const double s = static_cast<double>(scale[r]);
    // s / (v + eps) = s^(1 + 2 / power)
    const double along = power * std::pow(s, 1 + 2 / power) * dot / static_cast<double>(cols);
    const Simd<T> centre(static_cast<double>(mean[r])), factor(s), down(along);
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      put(factor * get(gy + i, count) - down * (get(x + i, count) - centre), gx + i, count);
    }
  }
}

}  // namespace

NodeNormRows<float> node_norm_rows_f32() { return {forward<float>, backward<float>}; }
NodeNormRows<double> node_norm_rows_f64() { return {forward<double>, backward<double>}; }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(node_norm_rows_f32);
HWY_EXPORT(node_norm_rows_f64);

namespace {

NodeNormRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(node_norm_rows_f32)(); }
NodeNormRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(node_norm_rows_f64)(); }

}  // namespace

template <class T>
void node_norm(std::int64_t rows, std::int64_t cols, double eps, double power, const T* x, T* y,
               T* mean, T* scale) {
  const NodeNormRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    f.forward(end - begin, cols, eps, power, x + begin * cols, y + begin * cols, mean + begin,
              scale + begin);
  });
}

template <class T>
void node_norm_backward(std::int64_t rows, std::int64_t cols, double power, const T* x,
                        const T* mean, const T* scale, const T* gy, T* gx) {
  const NodeNormRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    f.backward(end - begin, cols, power, x + begin * cols, mean + begin, scale + begin,
               gy + begin * cols, gx + begin * cols);
  });
}

#define INSTANTIATE(T)                                                                       \
  template void node_norm(std::int64_t, std::int64_t, double, double, const T*, T*, T*, T*); \
  template void node_norm_backward(std::int64_t, std::int64_t, double, const T*, const T*,   \
                                   const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
