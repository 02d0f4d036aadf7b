#include <lipgrad/ops/kernels/elementwise.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/elementwise_binary_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
BinaryRow<T> binary_row_of(Binary op) {
  switch (op) {
    case Binary::add:
      return binary_row<Add, T>;
    case Binary::sub:
      return binary_row<Sub, T>;
    case Binary::mul:
      return binary_row<Mul, T>;
    case Binary::div:
      return binary_row<Div, T>;
    case Binary::pow:
      return binary_row<Pow, T>;
    case Binary::minimum:
      return binary_row<Minimum, T>;
    case Binary::maximum:
      return binary_row<Maximum, T>;
  }
  return nullptr;
}

}  // namespace

BinaryRow<float> binary_row_of_f32(Binary op) { return binary_row_of<float>(op); }
BinaryRow<double> binary_row_of_f64(Binary op) { return binary_row_of<double>(op); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(binary_row_of_f32);
HWY_EXPORT(binary_row_of_f64);

namespace {

BinaryRow<float> row_of(Binary op, float) { return HWY_DYNAMIC_DISPATCH(binary_row_of_f32)(op); }
BinaryRow<double> row_of(Binary op, double) { return HWY_DYNAMIC_DISPATCH(binary_row_of_f64)(op); }

}  // namespace

template <class T>
void binary(Binary op, const Broadcast& shape, const T* u, const T* v, T* y) {
  const BinaryRow<T> row = row_of(op, T());
  const int last = shape.rank - 1;
  const std::int64_t su = last < 0 ? 0 : shape.stride[0][last],
                     sv = last < 0 ? 0 : shape.stride[1][last];
  if (shape.numel <= cheap_grain && shape.rank <= 1) {  // small ones at the least cost
    if (shape.numel > 0) row(shape.numel, u, su, v, sv, y);
    return;
  }
  for_rows(shape, 2, op == Binary::pow ? costly_grain : cheap_grain,
           [&](const std::int64_t* offset, std::int64_t at, std::int64_t n) {
             row(n, u + offset[0], su, v + offset[1], sv, y + at);
           });
}

#define INSTANTIATE(T) template void binary(Binary, const Broadcast&, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
