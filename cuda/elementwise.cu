#include <lipgrad/ops/kernels/elementwise.h>
#include <lipgrad/ops/kernels/functors.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

// Calls run(functor) with the functor of an op, built from its two parameters.
template <class Run>
void visit(Unary op, double a, double b, Run run) {
  using namespace scalar;
  switch (op) {
    case Unary::neg:
      return run(Neg{a, b});
    case Unary::exp:
      return run(Exp{a, b});
    case Unary::log:
      return run(Log{a, b});
    case Unary::sqrt:
      return run(Sqrt{a, b});
    case Unary::abs:
      return run(Abs{a, b});
    case Unary::square:
      return run(Square{a, b});
    case Unary::reciprocal:
      return run(Reciprocal{a, b});
    case Unary::add_scalar:
      return run(AddScalar{a, b});
    case Unary::mul_scalar:
      return run(MulScalar{a, b});
    case Unary::div_scalar:
      return run(DivScalar{a, b});
    case Unary::scalar_sub:
      return run(ScalarSub{a, b});
    case Unary::scalar_div:
      return run(ScalarDiv{a, b});
    case Unary::pow_scalar:
      return run(PowScalar{a, b});
    case Unary::clamp:
      return run(Clamp{a, b});
  }
}

template <class Run>
void visit_backward(Unary op, double a, double b, Run run) {
  using namespace scalar;
  switch (op) {
    case Unary::neg:
    case Unary::scalar_sub:
      return run(NegBackward{a, b});
    case Unary::exp:
      return run(ExpBackward{a, b});
    case Unary::log:
      return run(LogBackward{a, b});
    case Unary::sqrt:
      return run(SqrtBackward{a, b});
    case Unary::abs:
      return run(AbsBackward{a, b});
    case Unary::square:
      return run(SquareBackward{a, b});
    case Unary::reciprocal:
      return run(ReciprocalBackward{a, b});
    case Unary::add_scalar:
      return run(AddScalarBackward{a, b});
    case Unary::mul_scalar:
      return run(MulScalarBackward{a, b});
    case Unary::div_scalar:
      return run(DivScalarBackward{a, b});
    case Unary::scalar_div:
      return run(ScalarDivBackward{a, b});
    case Unary::pow_scalar:
      return run(PowScalarBackward{a, b});
    case Unary::clamp:
      return run(ClampBackward{a, b});
  }
}

}  // namespace

template <class T>
void unary(Unary op, double a, double b, std::int64_t n, const T* x, T* y) {
  visit(op, a, b, [&](auto f) { map(f, n, x, y); });
}

template <class T>
void unary_backward(Unary op, double a, double b, std::int64_t n, const T* saved, const T* gy,
                    T* gx) {
  if (saves_nothing(op)) saved = gy;  // not looked at
  visit_backward(op, a, b, [&](auto f) { map2(f, n, saved, gy, gx); });
}

#define INSTANTIATE(T)                                                    \
  template void unary(Unary, double, double, std::int64_t, const T*, T*); \
  template void unary_backward(Unary, double, double, std::int64_t, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
