#include <lipgrad/ops/kernels/activation.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/activation_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
UnaryRow<T> activation_row(Activation f) {
  switch (f) {
    case Activation::identity:
      return map_row<Identity, T>;
    case Activation::relu:
      return map_row<Relu, T>;
    case Activation::leaky_relu:
      return map_row<LeakyRelu, T>;
    case Activation::elu:
      return map_row<Elu, T>;
    case Activation::gelu:
      return map_row<Gelu, T>;
    case Activation::gelu_tanh:
      return map_row<GeluTanh, T>;
    case Activation::silu:
      return map_row<Silu, T>;
    case Activation::sigmoid:
      return map_row<Sigmoid, T>;
    case Activation::tanh:
      return map_row<Tanh, T>;
    case Activation::softplus:
      return map_row<Softplus, T>;
  }
  return nullptr;
}

}  // namespace

UnaryRow<float> activation_row_f32(Activation f) { return activation_row<float>(f); }
UnaryRow<double> activation_row_f64(Activation f) { return activation_row<double>(f); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(activation_row_f32);
HWY_EXPORT(activation_row_f64);

namespace {

UnaryRow<float> row_of(Activation f, float) { return HWY_DYNAMIC_DISPATCH(activation_row_f32)(f); }
UnaryRow<double> row_of(Activation f, double) {
  return HWY_DYNAMIC_DISPATCH(activation_row_f64)(f);
}

bool is_cheap(Activation f) {
  return f == Activation::identity || f == Activation::relu || f == Activation::leaky_relu;
}

}  // namespace

template <class T>
void activation(Activation f, double a, std::int64_t n, const T* x, T* y) {
  const UnaryRow<T> row = row_of(f, T());
  parallel_for(
      n, is_cheap(f) ? cheap_grain : costly_grain,
      [&](std::int64_t begin, std::int64_t end) { row(a, 0, end - begin, x + begin, y + begin); });
}

template <class T>
void activation_block(Activation f, double a, std::int64_t n, const T* x, T* y) {
  row_of(f, T())(a, 0, n, x, y);
}

template <class T>
void bias_activation_block(Activation f, double a, std::int64_t rows, std::int64_t cols,
                           std::int64_t ldx, const T* x, const T* bias, std::int64_t ldy, T* y) {
  const UnaryRow<T> row = row_of(f, T());
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * ldx;
    T* to = y + r * ldy;
    if (bias) {
      for (std::int64_t c = 0; c < cols; ++c) to[c] = from[c] + bias[c];
      from = to;
    }
    if (f != Activation::identity || from != to) row(a, 0, cols, from, to);
  }
}

template <class T>
void bias_activation(Activation f, double a, std::int64_t rows, std::int64_t cols, const T* x,
                     const T* bias, T* y) {
  const std::int64_t grain = is_cheap(f) ? cheap_grain : costly_grain;
  parallel_for(rows, std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, cols)),
               [&](std::int64_t begin, std::int64_t end) {
                 bias_activation_block(f, a, end - begin, cols, cols, x + begin * cols, bias, cols,
                                       y + begin * cols);
               });
}

#define INSTANTIATE(T)                                                                    \
  template void activation(Activation, double, std::int64_t, const T*, T*);               \
  template void activation_block(Activation, double, std::int64_t, const T*, T*);         \
  template void bias_activation(Activation, double, std::int64_t, std::int64_t, const T*, \
                                const T*, T*);                                            \
  template void bias_activation_block(Activation, double, std::int64_t, std::int64_t,     \
                                      std::int64_t, const T*, const T*, std::int64_t, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
