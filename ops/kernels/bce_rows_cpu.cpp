#include <lipgrad/ops/kernels/loss.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/bce_rows_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// The sum over a row's known terms, in pieces of 1024 added in double; their number is added to
// `known`.
template <class T>
double bce_row(std::int64_t n, bool skip_missing, const T* x, const T* t, std::int64_t* known) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 1024) {
    const std::int64_t end = std::min(n, start + 1024);
    V total(0.0), terms(0.0);
    for (std::int64_t i = start; i < end; i += lanes) {
      const std::int64_t count = std::min(lanes, end - i);
      const V a = get(x + i, count), b = get(t + i, count);
      auto counts = first_lanes<T>(count);
      if (skip_missing) counts = counts && b == b;
      const V value = max(a, V(0.0)) - a * b + log1p_unit(exp(-abs(a)));
      total = total + select(counts, value, V(0.0));
      terms = terms + select(counts, V(1.0), V(0.0));
    }
    sum += sum_of_lanes(total);
    *known += static_cast<std::int64_t>(sum_of_lanes(terms));
  }
  return sum;
}

// The gradients of the known terms, times `scale`; either may be null.
template <class T>
void bce_gradient_row(std::int64_t n, bool skip_missing, double scale, const T* x, const T* t,
                      T* gx, T* gt) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V a = get(x + i, count), b = get(t + i, count);
    const auto known = b == b;
    V p, rest;
    logistic(a, p, rest);
    V to_x = V(scale) * (p - b), to_t = V(-scale) * a;
    if (skip_missing) {
      to_x = select(known, to_x, V(0.0));
      to_t = select(known, to_t, V(0.0));
    }
    if (gx) put(to_x, gx + i, count);
    if (gt) put(to_t, gt + i, count);
  }
}

}  // namespace

double bce_row_f32(std::int64_t n, bool skip_missing, const float* x, const float* t,
                   std::int64_t* known) {
  return bce_row(n, skip_missing, x, t, known);
}
double bce_row_f64(std::int64_t n, bool skip_missing, const double* x, const double* t,
                   std::int64_t* known) {
  return bce_row(n, skip_missing, x, t, known);
}
void bce_gradient_row_f32(std::int64_t n, bool skip_missing, double scale, const float* x,
                          const float* t, float* gx, float* gt) {
  bce_gradient_row(n, skip_missing, scale, x, t, gx, gt);
}
void bce_gradient_row_f64(std::int64_t n, bool skip_missing, double scale, const double* x,
                          const double* t, double* gx, double* gt) {
  bce_gradient_row(n, skip_missing, scale, x, t, gx, gt);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(bce_row_f32);
HWY_EXPORT(bce_row_f64);
HWY_EXPORT(bce_gradient_row_f32);
HWY_EXPORT(bce_gradient_row_f64);

template <class T>
void bce_rows(std::int64_t, std::int64_t count, std::int64_t cols, const T* x,
              const std::int64_t* rows, const T* t, bool skip_missing, double* known, T* loss) {
  const std::int64_t grain = rows_per_block(costly_grain, cols);
  std::vector<std::int64_t> terms(static_cast<std::size_t>((count + grain - 1) / grain));
  const double sum = sum_of_blocks(count, grain, [&](std::int64_t begin, std::int64_t end) {
    double part = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = (rows ? rows[i] : i) * cols;
      std::int64_t* const found = &terms[static_cast<std::size_t>(begin / grain)];
      if constexpr (sizeof(T) == 4) {
        part += HWY_DYNAMIC_DISPATCH(bce_row_f32)(cols, skip_missing, x + at, t + at, found);
      } else {
        part += HWY_DYNAMIC_DISPATCH(bce_row_f64)(cols, skip_missing, x + at, t + at, found);
      }
    }
    return part;
  });
  std::int64_t all = 0;
  for (const std::int64_t n : terms) all += n;
  *known = static_cast<double>(all);
  *loss = all > 0 ? static_cast<T>(sum / *known) : T(0);
}

template <class T>
void bce_rows_backward(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                       const std::int64_t* rows, const T* t, bool skip_missing, const double* known,
                       const T* gy, T* gx, T* gt) {
  // A gradient row has one owner: with chosen rows, count how often each is.
  std::vector<std::int32_t> times(rows ? static_cast<std::size_t>(total) : 0);
  if (rows)
    for (std::int64_t i = 0; i < count; ++i) ++times[static_cast<std::size_t>(rows[i])];
  const double scale = *known > 0 ? static_cast<double>(*gy) / *known : 0;
  parallel_for(
      total, rows_per_block(costly_grain, cols), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const std::int64_t k = rows ? times[static_cast<std::size_t>(r)] : 1, at = r * cols;
          T* const to_x = gx ? gx + at : nullptr;
          T* const to_t = gt ? gt + at : nullptr;
          if (k == 0) {
            if (to_x) std::fill(to_x, to_x + cols, T(0));
            if (to_t) std::fill(to_t, to_t + cols, T(0));
            continue;
          }
          const double weight = scale * static_cast<double>(k);
          if constexpr (sizeof(T) == 4) {
            HWY_DYNAMIC_DISPATCH(bce_gradient_row_f32)
            (cols, skip_missing, weight, x + at, t + at, to_x, to_t);
          } else {
            HWY_DYNAMIC_DISPATCH(bce_gradient_row_f64)
            (cols, skip_missing, weight, x + at, t + at, to_x, to_t);
          }
        }
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

}  // namespace lipgrad::cpu
#endif
