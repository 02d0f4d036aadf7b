#include <lipgrad/ops/kernels/norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/center_norm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/norm_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
T factor(std::int64_t n) {
  return static_cast<T>(double(n) / double(n - 1));
}

template <class T>
void forward_rows(std::int64_t rows, std::int64_t n, const T* x, const T* weight, const T* bias,
                  T* y, T* mean) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V scale(factor<T>(n));
  for (std::int64_t r = 0; r < rows; ++r, x += n, y += n) {
    V total(0.0);
    for (std::int64_t i = 0; i < n; i += lanes) total = total + get(x + i, std::min(lanes, n - i));
    mean[r] = sum_of_lanes(total) / static_cast<T>(n);
    const V centre(mean[r]);
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t count = std::min(lanes, n - i);
      V v = (get(x + i, count) - centre) * scale;
      if (weight) v = v * get(weight + i, count);
      if (bias) v = v + get(bias + i, count);
      put(v, y + i, count);
    }
  }
}

template <class T>
void backward_rows(std::int64_t rows, std::int64_t n, const T* x, const T* weight, const T* mean,
                   const T* gy, T* gx, T* gweight, T* gbias) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V scale(factor<T>(n));
  for (std::int64_t r = 0; r < rows; ++r, gy += n) {
    V sum(0.0);
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t count = std::min(lanes, n - i);
      const V g = get(gy + i, count);
      sum = sum + (weight ? g * get(weight + i, count) : g);
      if (gweight) {
        const V z = (get(x + r * n + i, count) - V(mean[r])) * scale;
        put(fma(g, z, get(gweight + i, count)), gweight + i, count);
      }
      if (gbias) put(get(gbias + i, count) + g, gbias + i, count);
    }
    if (!gx) continue;
    const V shift(sum_of_lanes(sum) / static_cast<T>(n));
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t count = std::min(lanes, n - i);
      V h = get(gy + i, count);
      if (weight) h = h * get(weight + i, count);
      put(scale * (h - shift), gx + r * n + i, count);
    }
  }
}

template <class T>
CenterNormRows<T> table() {
  return {forward_rows<T>, backward_rows<T>};
}

}  // namespace

CenterNormRows<float> center_norm_rows_f32() { return table<float>(); }
CenterNormRows<double> center_norm_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <lipgrad/ops/kernels/column_blocks.h>

namespace lipgrad::cpu {

HWY_EXPORT(center_norm_rows_f32);
HWY_EXPORT(center_norm_rows_f64);

namespace {

CenterNormRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(center_norm_rows_f32)(); }
CenterNormRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(center_norm_rows_f64)(); }

}  // namespace

template <class T>
void center_norm(std::int64_t rows, std::int64_t cols, const T* x, const T* weight, const T* bias,
                 T* y, T* mean) {
  const CenterNormRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    f.forward(end - begin, cols, x + begin * cols, weight, bias, y + begin * cols, mean + begin);
  });
}

template <class T>
void center_norm_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* weight,
                          const T* mean, const T* gy, T* gx, T* gweight, T* gbias) {
  const CenterNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> weights, biases;
  if (gweight) weights = cut.partial_sums<T>();
  if (gbias) biases = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * cols;
    f.backward(count, cols, gweight ? x + at : nullptr, weight, gweight ? mean + first : nullptr,
               gy + at, gx ? gx + at : nullptr, gweight ? weights.data() + block * cols : nullptr,
               gbias ? biases.data() + block * cols : nullptr);
  });
  if (gweight) cut.add_up(weights, 1, gweight);
  if (gbias) cut.add_up(biases, 1, gbias);
}

#define INSTANTIATE(T)                                                                         \
  template void center_norm(std::int64_t, std::int64_t, const T*, const T*, const T*, T*, T*); \
  template void center_norm_backward(std::int64_t, std::int64_t, const T*, const T*, const T*, \
                                     const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
