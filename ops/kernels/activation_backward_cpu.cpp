#include <lipgrad/ops/kernels/activation.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/activation_backward_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
BackwardRow<T> activation_backward_row(Activation f) {
  switch (f) {
    case Activation::identity:
      return map2_row<IdentityBackward, T>;
    case Activation::relu:
      return map2_row<ReluBackward, T>;
    case Activation::leaky_relu:
      return map2_row<LeakyReluBackward, T>;
    case Activation::elu:
      return map2_row<EluBackward, T>;
    case Activation::gelu:
      return map2_row<GeluBackward, T>;
    case Activation::gelu_tanh:
      return map2_row<GeluTanhBackward, T>;
    case Activation::silu:
      return map2_row<SiluBackward, T>;
    case Activation::sigmoid:
      return map2_row<SigmoidBackward, T>;
    case Activation::tanh:
      return map2_row<TanhBackward, T>;
    case Activation::softplus:
      return map2_row<SoftplusBackward, T>;
  }
  return nullptr;
}

}  // namespace

BackwardRow<float> activation_backward_row_f32(Activation f) {
  return activation_backward_row<float>(f);
}
BackwardRow<double> activation_backward_row_f64(Activation f) {
  return activation_backward_row<double>(f);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(activation_backward_row_f32);
HWY_EXPORT(activation_backward_row_f64);

namespace {

BackwardRow<float> row_of(Activation f, float) {
  return HWY_DYNAMIC_DISPATCH(activation_backward_row_f32)(f);
}
BackwardRow<double> row_of(Activation f, double) {
  return HWY_DYNAMIC_DISPATCH(activation_backward_row_f64)(f);
}

// Those that compute exp again.
bool is_costly(Activation f) {
  return f == Activation::gelu || f == Activation::gelu_tanh || f == Activation::silu ||
         f == Activation::softplus;
}

}  // namespace

template <class T>
void activation_backward(Activation f, double a, std::int64_t n, const T* saved, const T* gy,
                         T* gx) {
  const BackwardRow<T> row = row_of(f, T());
  parallel_for(n, is_costly(f) ? costly_grain : cheap_grain,
               [&](std::int64_t begin, std::int64_t end) {
                 row(a, 0, end - begin, saved + begin, gy + begin, gx + begin);
               });
}

#define INSTANTIATE(T) \
  template void activation_backward(Activation, double, std::int64_t, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
