#include <lipgrad/ops/kernels/residual.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/residual_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/column_blocks.h>
#include <lipgrad/ops/kernels/residual_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <bool Damped, bool Scalar, class T>
void forward_row(std::int64_t n, const T* x, const T* f, const T* alpha, T* y) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V fixed(Scalar ? *alpha : T(0));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V a = Scalar ? fixed : get(alpha + i, count);
    const V from = get(x + i, count), to = get(f + i, count);
    put(fma(a, Damped ? to - from : to, from), y + i, count);
  }
}

template <bool Damped, bool Scalar, class T>
void backward_row(std::int64_t n, const T* alpha, const T* gy, T* gx, T* gf) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V fixed(Scalar ? *alpha : T(0));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V g = get(gy + i, count);
    const V along = g * (Scalar ? fixed : get(alpha + i, count));
    if (gf) put(along, gf + i, count);
    if (gx) put(Damped ? g - along : g, gx + i, count);
  }
}

// galpha += gy f, damped: gy (f - x).
template <bool Damped, class T>
void add_row(std::int64_t n, const T* x, const T* f, const T* gy, T* galpha) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    V d = get(f + i, count);
    if constexpr (Damped) d = d - get(x + i, count);
    put(fma(get(gy + i, count), d, get(galpha + i, count)), galpha + i, count);
  }
}

// The sum of gy f, damped: gy (f - x), over a row: short chains, added in double.
template <bool Damped, class T>
double dot(std::int64_t n, const T* x, const T* f, const T* gy) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 512) {
    const std::int64_t end = std::min(n, start + 512);
    V part(0.0);
    for (std::int64_t i = start; i < end; i += lanes) {
      const std::int64_t count = std::min(lanes, end - i);
      V d = get(f + i, count);
      if constexpr (Damped) d = d - get(x + i, count);
      part = fma(get(gy + i, count), d, part);
    }
    sum += sum_of_lanes(part);
  }
  return sum;
}

template <bool Damped, class T>
ResidualRows<T> table() {
  return {
      forward_row<Damped, false, T>, forward_row<Damped, true, T>, backward_row<Damped, false, T>,
      backward_row<Damped, true, T>, add_row<Damped, T>,           dot<Damped, T>};
}

}  // namespace

ResidualRows<float> residual_rows_f32(bool damped) {
  return damped ? table<true, float>() : table<false, float>();
}
ResidualRows<double> residual_rows_f64(bool damped) {
  return damped ? table<true, double>() : table<false, double>();
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(residual_rows_f32);
HWY_EXPORT(residual_rows_f64);

namespace {

ResidualRows<float> rows_of(bool damped, float) {
  return HWY_DYNAMIC_DISPATCH(residual_rows_f32)(damped);
}
ResidualRows<double> rows_of(bool damped, double) {
  return HWY_DYNAMIC_DISPATCH(residual_rows_f64)(damped);
}

}  // namespace

template <class T>
void residual(bool damped, std::int64_t rows, std::int64_t cols, bool scalar, const T* x,
              const T* f, const T* alpha, T* y) {
  const ResidualRows<T> kernel = rows_of(damped, T());
  if (scalar) {
    parallel_for(rows * cols, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
      kernel.forward_scalar(end - begin, x + begin, f + begin, alpha, y + begin);
    });
    return;
  }
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * cols; at < end * cols; at += cols)
      kernel.forward(cols, x + at, f + at, alpha, y + at);
  });
}

template <class T>
void residual_backward(bool damped, std::int64_t rows, std::int64_t cols, bool scalar, const T* x,
                       const T* f, const T* alpha, const T* gy, T* gx, T* gf, T* galpha) {
  const ResidualRows<T> kernel = rows_of(damped, T());
  const auto from = [&](std::int64_t at) { return x ? x + at : nullptr; };
  if (scalar) {
    const double sum =
        sum_of_blocks(rows * cols, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t n = end - begin;
          const double part = galpha ? kernel.dot(n, from(begin), f + begin, gy + begin) : 0;
          if (gx || gf)
            kernel.backward_scalar(n, alpha, gy + begin, gx ? gx + begin : nullptr,
                                   gf ? gf + begin : nullptr);
          return part;
        });
    if (galpha) *galpha = static_cast<T>(sum);
    return;
  }
  const ColumnBlocks cut(rows, cols);
  std::vector<T> partial;
  if (galpha) partial = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    for (std::int64_t at = first * cols; at < (first + count) * cols; at += cols) {
      if (galpha) kernel.add(cols, from(at), f + at, gy + at, partial.data() + block * cols);
      if (gx || gf)
        kernel.backward(cols, alpha, gy + at, gx ? gx + at : nullptr, gf ? gf + at : nullptr);
    }
  });
  if (galpha) cut.add_up(partial, 1, galpha);
}

#define INSTANTIATE(T)                                                                         \
  template void residual(bool, std::int64_t, std::int64_t, bool, const T*, const T*, const T*, \
                         T*);                                                                  \
  template void residual_backward(bool, std::int64_t, std::int64_t, bool, const T*, const T*,  \
                                  const T*, const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
