#include <lipgrad/ops/kernels/elementwise.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/elementwise_unary_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
UnaryRow<T> unary_row(Unary op) {
  switch (op) {
    case Unary::neg:
      return map_row<Neg, T>;
    case Unary::exp:
      return map_row<Exp, T>;
    case Unary::log:
      return map_row<Log, T>;
    case Unary::sqrt:
      return map_row<Sqrt, T>;
    case Unary::abs:
      return map_row<Abs, T>;
    case Unary::square:
      return map_row<Square, T>;
    case Unary::reciprocal:
      return map_row<Reciprocal, T>;
    case Unary::add_scalar:
      return map_row<AddScalar, T>;
    case Unary::mul_scalar:
      return map_row<MulScalar, T>;
    case Unary::div_scalar:
      return map_row<DivScalar, T>;
    case Unary::scalar_sub:
      return map_row<ScalarSub, T>;
    case Unary::scalar_div:
      return map_row<ScalarDiv, T>;
    case Unary::pow_scalar:
      return map_row<PowScalar, T>;
    case Unary::clamp:
      return map_row<Clamp, T>;
  }
  return nullptr;
}

template <class T>
BackwardRow<T> unary_backward_row(Unary op) {
  switch (op) {
    case Unary::neg:
      return map2_row<NegBackward, T>;
    case Unary::exp:
      return map2_row<ExpBackward, T>;
    case Unary::log:
      return map2_row<LogBackward, T>;
    case Unary::sqrt:
      return map2_row<SqrtBackward, T>;
    case Unary::abs:
      return map2_row<AbsBackward, T>;
    case Unary::square:
      return map2_row<SquareBackward, T>;
    case Unary::reciprocal:
      return map2_row<ReciprocalBackward, T>;
    case Unary::add_scalar:
      return map2_row<AddScalarBackward, T>;
    case Unary::mul_scalar:
      return map2_row<MulScalarBackward, T>;
    case Unary::div_scalar:
      return map2_row<DivScalarBackward, T>;
    case Unary::scalar_sub:
      return map2_row<ScalarSubBackward, T>;
    case Unary::scalar_div:
      return map2_row<ScalarDivBackward, T>;
    case Unary::pow_scalar:
      return map2_row<PowScalarBackward, T>;
    case Unary::clamp:
      return map2_row<ClampBackward, T>;
  }
  return nullptr;
}

}  // namespace

UnaryRow<float> unary_row_f32(Unary op) { return unary_row<float>(op); }
UnaryRow<double> unary_row_f64(Unary op) { return unary_row<double>(op); }
BackwardRow<float> unary_backward_row_f32(Unary op) { return unary_backward_row<float>(op); }
BackwardRow<double> unary_backward_row_f64(Unary op) { return unary_backward_row<double>(op); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(unary_row_f32);
HWY_EXPORT(unary_row_f64);
HWY_EXPORT(unary_backward_row_f32);
HWY_EXPORT(unary_backward_row_f64);

namespace {

UnaryRow<float> row_of(Unary op, float) { return HWY_DYNAMIC_DISPATCH(unary_row_f32)(op); }
UnaryRow<double> row_of(Unary op, double) { return HWY_DYNAMIC_DISPATCH(unary_row_f64)(op); }
BackwardRow<float> backward_row_of(Unary op, float) {
  return HWY_DYNAMIC_DISPATCH(unary_backward_row_f32)(op);
}
BackwardRow<double> backward_row_of(Unary op, double) {
  return HWY_DYNAMIC_DISPATCH(unary_backward_row_f64)(op);
}

std::int64_t grain_of(Unary op) {
  return op == Unary::exp || op == Unary::log || op == Unary::pow_scalar ? costly_grain
                                                                         : cheap_grain;
}

}  // namespace

template <class T>
void unary(Unary op, double a, double b, std::int64_t n, const T* x, T* y) {
  const UnaryRow<T> row = row_of(op, T());
  parallel_for(n, grain_of(op), [&](std::int64_t begin, std::int64_t end) {
    row(a, b, end - begin, x + begin, y + begin);
  });
}

template <class T>
void unary_backward(Unary op, double a, double b, std::int64_t n, const T* saved, const T* gy,
                    T* gx) {
  const BackwardRow<T> row = backward_row_of(op, T());
  if (saves_nothing(op)) saved = gy;  // any readable address
  parallel_for(n, op == Unary::pow_scalar ? costly_grain : cheap_grain,
               [&](std::int64_t begin, std::int64_t end) {
                 row(a, b, end - begin, saved + begin, gy + begin, gx + begin);
               });
}

#define INSTANTIATE(T)                                                    \
  template void unary(Unary, double, double, std::int64_t, const T*, T*); \
  template void unary_backward(Unary, double, double, std::int64_t, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
