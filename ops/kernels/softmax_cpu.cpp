#include <lipgrad/ops/kernels/softmax.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/softmax_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/softmax_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

// y = mask ? x : -inf for an array of `rows` rows of `cols`, both with leading dimension ld.
template <class T>
void apply_mask(std::int64_t rows, std::int64_t cols, std::int64_t ld, const T* x,
                const std::uint8_t* mask, T* y) {
  for (std::int64_t r = 0; r < rows * ld; r += ld)
    for (std::int64_t c = r; c < r + cols; ++c) y[c] = mask[c] ? x[c] : -infinity<T>;
}

template <class T>
bool any_nan(std::int64_t n, std::int64_t step, const T* x) {
  for (std::int64_t i = 0; i < n * step; i += step)
    if (x[i] != x[i]) return true;
  return false;
}

// sum and top of a row give what is subtracted from x, or what exp(x - top) is multiplied by.
template <bool kLog, class T>
HWY_INLINE T scale_of(T top, T sum) {
  if constexpr (kLog) {
    return top + std::log(sum);
  } else {
    return T(1) / sum;
  }
}

template <bool kLog, class T>
void row(std::int64_t n, const T* x, T* y) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V lowest(-infinity<T>);
  const bool one = n <= lanes;  // the row fits a vector
  V piece = get(x, std::min(lanes, n), lowest), top = piece;
  for (std::int64_t i = lanes; i < n; i += lanes)
    top = quick_max(top, get(x + i, std::min(lanes, n - i), lowest));
  const T highest = quick_max_of_lanes(top);
  if (highest == -infinity<T> && !any_nan(n, 1, x)) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = 0;
    return;
  }
  const V shift(highest);
  if (one) {
    const V e = exp(piece - shift), scale(scale_of<kLog>(highest, sum_of_lanes(e)));
    put(kLog ? piece - scale : e * scale, y, n);
    return;
  }
  V total(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V e = exp(get(x + i, count, lowest) - shift);
    total = total + e;
    if (!kLog) put(e, y + i, count);
  }
  const V scale(scale_of<kLog>(highest, sum_of_lanes(total)));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    put(kLog ? get(x + i, count) - scale : get(y + i, count) * scale, y + i, count);
  }
}

// `count` <= lanes() neighbouring columns of length n, elements ld apart.
template <bool kLog, class T>
void column(std::int64_t n, std::int64_t ld, std::int64_t count, const T* x, T* y) {
  using V = Simd<T>;
  V top(-infinity<T>), sum(0.0);
  for (std::int64_t i = 0; i < n; ++i) top = max(top, get(x + i * ld, count));
  const auto dead = top == V(-infinity<T>);
  top = select(dead, V(0.0), top);
  for (std::int64_t i = 0; i < n; ++i) {
    const V e = exp(get(x + i * ld, count) - top);
    sum = sum + e;
    if (!kLog) put(e, y + i * ld, count);
  }
  const V scale = kLog ? top + log(sum) : V(1.0) / sum;
  for (std::int64_t i = 0; i < n; ++i) {
    const V v = kLog ? get(x + i * ld, count) - scale : get(y + i * ld, count) * scale;
    put(select(dead, V(0.0), v), y + i * ld, count);
  }
}

template <bool kLog, class T>
void run_rows(std::int64_t rows, std::int64_t n, const T* x, const std::uint8_t* mask, T* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const T* from = x;
    if (mask) {
      apply_mask(1, n, n, x, mask, y);
      mask += n;
      from = y;
    }
    row<kLog>(n, from, y);
  }
}

template <bool kLog, class T>
void run_columns(std::int64_t n, std::int64_t inner, std::int64_t width, const T* x,
                 const std::uint8_t* mask, T* y) {
  if (mask) {
    apply_mask(n, width, inner, x, mask, y);
    x = y;
  }
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t c = 0; c < width; c += lanes)
    column<kLog>(n, inner, std::min(lanes, width - c), x + c, y + c);
}

}  // namespace

SoftmaxRows<float> softmax_f32(bool log) {
  if (log) return {run_rows<true, float>, run_columns<true, float>};
  return {run_rows<false, float>, run_columns<false, float>};
}
SoftmaxRows<double> softmax_f64(bool log) {
  if (log) return {run_rows<true, double>, run_columns<true, double>};
  return {run_rows<false, double>, run_columns<false, double>};
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);

namespace {

SoftmaxRows<float> rows_of(bool log, float) { return HWY_DYNAMIC_DISPATCH(softmax_f32)(log); }
SoftmaxRows<double> rows_of(bool log, double) { return HWY_DYNAMIC_DISPATCH(softmax_f64)(log); }

}  // namespace

template <class T>
void softmax(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
             const std::uint8_t* mask, T* y) {
  run_softmax(rows_of(false, T()), outer, n, inner, x, mask, y);
}
template <class T>
void log_softmax(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
                 const std::uint8_t* mask, T* y) {
  run_softmax(rows_of(true, T()), outer, n, inner, x, mask, y);
}

#define INSTANTIATE(T)                                                                           \
  template void softmax(std::int64_t, std::int64_t, std::int64_t, const T*, const std::uint8_t*, \
                        T*);                                                                     \
  template void log_softmax(std::int64_t, std::int64_t, std::int64_t, const T*,                  \
                            const std::uint8_t*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
