#include <lipgrad/ops/kernels/gru_cell.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/gru_cell_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/gru_cell_rows_cpu.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

#include <lipgrad/ops/kernels/map-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
struct Gates {
  Simd<T> r, r_rest, z, z_rest, n;  // rest: 1 - r, 1 - z

  HWY_INLINE Gates(std::int64_t cols, const T* x, const T* hidden, std::int64_t count,
                   Simd<T> hidden_n) {
    logistic(get(x, count) + get(hidden, count), r, r_rest);
    logistic(get(x + cols, count) + get(hidden + cols, count), z, z_rest);
    n = tanh(fma(r, hidden_n, get(x + 2 * cols, count)));
  }
};

template <class T>
void forward(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h, T* y) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t row = 0; row < rows;
       ++row, x += 3 * cols, hidden += 3 * cols, h += cols, y += cols) {
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      const Gates<T> g(cols, x + i, hidden + i, count, get(hidden + 2 * cols + i, count));
      put(fma(g.z, get(h + i, count), g.z_rest * g.n), y + i, count);
    }
  }
}

template <class T>
void backward(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h,
              const T* gy, T* gx, T* ghidden, T* gh) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t wide = row * 3 * cols, narrow = row * cols;
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i), at = wide + i;
      const V hidden_n = get(hidden + at + 2 * cols, count);
      const Gates<T> f(cols, x + at, hidden + at, count, hidden_n);
      const V g = get(gy + narrow + i, count);
      const V to_z = g * (get(h + narrow + i, count) - f.n) * f.z * f.z_rest;
      const V to_n = g * f.z_rest * (V(1.0) - f.n * f.n);
      const V to_r = to_n * hidden_n * f.r * f.r_rest;
      for (T* to : {gx, ghidden}) {
        if (!to) continue;
        put(to_r, to + at, count);
        put(to_z, to + at + cols, count);
        put(to == gx ? to_n : to_n * f.r, to + at + 2 * cols, count);
      }
      if (gh) put(g * f.z, gh + narrow + i, count);
    }
  }
}

}  // namespace

GruRows<float> gru_rows_f32() { return {forward<float>, backward<float>}; }
GruRows<double> gru_rows_f64() { return {forward<double>, backward<double>}; }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(gru_rows_f32);
HWY_EXPORT(gru_rows_f64);

namespace {

GruRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(gru_rows_f32)(); }
GruRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(gru_rows_f64)(); }

}  // namespace

template <class T>
void gru_gates(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h,
               T* y) {
  const GruRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(costly_grain, 3 * cols),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t at = begin * cols;
                 f.forward(end - begin, cols, x + 3 * at, hidden + 3 * at, h + at, y + at);
               });
}

template <class T>
void gru_gates_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden,
                        const T* h, const T* gy, T* gx, T* ghidden, T* gh) {
  const GruRows<T> f = rows_of(T());
  parallel_for(rows, rows_per_block(costly_grain, 3 * cols),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t at = begin * cols;
                 f.backward(end - begin, cols, x + 3 * at, hidden + 3 * at, h + at, gy + at,
                            gx ? gx + 3 * at : nullptr, ghidden ? ghidden + 3 * at : nullptr,
                            gh ? gh + at : nullptr);
               });
}

#define INSTANTIATE(T)                                                                       \
  template void gru_gates(std::int64_t, std::int64_t, const T*, const T*, const T*, T*);     \
  template void gru_gates_backward(std::int64_t, std::int64_t, const T*, const T*, const T*, \
                                   const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
