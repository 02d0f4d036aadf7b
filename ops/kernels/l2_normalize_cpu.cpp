#include <lipgrad/ops/kernels/norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/l2_normalize_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/norm_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void rows_of(std::int64_t rows, std::int64_t n, double eps, const T* x, T* y, T* norm) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t r = 0; r < rows; ++r, x += n, y += n) {
    V squares(0.0);
    for (std::int64_t i = 0; i < n; i += lanes) {
      const V v = get(x + i, std::min(lanes, n - i));
      squares = fma(v, v, squares);
    }
    norm[r] = std::sqrt(sum_of_lanes(squares));
    const V divisor(norm[r] < static_cast<T>(eps) ? static_cast<T>(eps) : norm[r]);
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t count = std::min(lanes, n - i);
      put(get(x + i, count) / divisor, y + i, count);
    }
  }
}

template <class T>
void columns_of(std::int64_t n, std::int64_t ld, std::int64_t width, double eps, const T* x, T* y,
                T* norm) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t c = 0; c < width; c += lanes) {
    const std::int64_t count = std::min(lanes, width - c);
    V squares(0.0);
    for (std::int64_t i = c; i < n * ld; i += ld) {
      const V v = get(x + i, count);
      squares = fma(v, v, squares);
    }
    const V length = sqrt(squares), divisor = max(length, V(eps));
    put(length, norm + c, count);
    for (std::int64_t i = c; i < n * ld; i += ld) put(get(x + i, count) / divisor, y + i, count);
  }
}

template <class T>
void backward_rows_of(std::int64_t rows, std::int64_t n, double eps, const T* y, const T* norm,
                      const T* gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t r = 0; r < rows; ++r, y += n, gy += n, gx += n) {
    const bool small = norm[r] < static_cast<T>(eps);
    V dot(0.0);
    for (std::int64_t i = 0; i < n && !small; i += lanes) {
      const std::int64_t count = std::min(lanes, n - i);
      dot = fma(get(y + i, count), get(gy + i, count), dot);
    }
    const V along(sum_of_lanes(dot)), divisor(small ? static_cast<T>(eps) : norm[r]);
    for (std::int64_t i = 0; i < n; i += lanes) {
      const std::int64_t count = std::min(lanes, n - i);
      put((get(gy + i, count) - get(y + i, count) * along) / divisor, gx + i, count);
    }
  }
}

template <class T>
void backward_columns_of(std::int64_t n, std::int64_t ld, std::int64_t width, double eps,
                         const T* y, const T* norm, const T* gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t c = 0; c < width; c += lanes) {
    const std::int64_t count = std::min(lanes, width - c);
    const V length = get(norm + c, count);
    const auto small = length < V(eps);
    V dot(0.0);
    for (std::int64_t i = c; i < n * ld; i += ld)
      dot = fma(get(y + i, count), get(gy + i, count), dot);
    dot = select(small, V(0.0), dot);
    const V divisor = select(small, V(eps), length);
    for (std::int64_t i = c; i < n * ld; i += ld)
      put((get(gy + i, count) - get(y + i, count) * dot) / divisor, gx + i, count);
  }
}

template <class T>
L2Rows<T> table() {
  return {rows_of<T>, columns_of<T>, backward_rows_of<T>, backward_columns_of<T>};
}

}  // namespace

L2Rows<float> l2_rows_f32() { return table<float>(); }
L2Rows<double> l2_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(l2_rows_f32);
HWY_EXPORT(l2_rows_f64);

namespace {

L2Rows<float> table_of(float) { return HWY_DYNAMIC_DISPATCH(l2_rows_f32)(); }
L2Rows<double> table_of(double) { return HWY_DYNAMIC_DISPATCH(l2_rows_f64)(); }

}  // namespace

template <class T>
void l2_normalize(std::int64_t outer, std::int64_t n, std::int64_t inner, double eps, const T* x,
                  T* y, T* norm) {
  if (n == 0) return std::fill(norm, norm + outer * inner, T(0));
  const L2Rows<T> f = table_of(T());
  for_groups(
      outer, n, inner, cheap_grain,
      [&](std::int64_t first, std::int64_t count) {
        f.rows(count, n, eps, x + first * n, y + first * n, norm + first);
      },
      [&](std::int64_t at, std::int64_t width) {
        f.columns(n, inner, width, eps, x + at, y + at,
                  norm + at / (n * inner) * inner + at % inner);
      });
}

template <class T>
void l2_normalize_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, double eps,
                           const T* y, const T* norm, const T* gy, T* gx) {
  const L2Rows<T> f = table_of(T());
  for_groups(
      outer, n, inner, cheap_grain,
      [&](std::int64_t first, std::int64_t count) {
        f.backward_rows(count, n, eps, y + first * n, norm + first, gy + first * n, gx + first * n);
      },
      [&](std::int64_t at, std::int64_t width) {
        f.backward_columns(n, inner, width, eps, y + at,
                           norm + at / (n * inner) * inner + at % inner, gy + at, gx + at);
      });
}

#define INSTANTIATE(T)                                                                            \
  template void l2_normalize(std::int64_t, std::int64_t, std::int64_t, double, const T*, T*, T*); \
  template void l2_normalize_backward(std::int64_t, std::int64_t, std::int64_t, double, const T*, \
                                      const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
