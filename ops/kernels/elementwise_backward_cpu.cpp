#include <lipgrad/ops/kernels/elementwise.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/elementwise_backward_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
TernaryRow<T> binary_backward_row(Binary op, int which) {
  switch (op) {
    case Binary::div:
      return which == 0 ? ternary_row<DivFirst, T> : ternary_row<DivSecond, T>;
    case Binary::pow:
      return which == 0 ? ternary_row<PowFirst, T> : ternary_row<PowSecond, T>;
    case Binary::minimum:
      return which == 0 ? ternary_row<MinimumFirst, T> : ternary_row<MinimumSecond, T>;
    case Binary::maximum:
      return which == 0 ? ternary_row<MaximumFirst, T> : ternary_row<MaximumSecond, T>;
    default:
      return nullptr;  // their gradients are products and copies
  }
}

}  // namespace

TernaryRow<float> binary_backward_row_f32(Binary op, int which) {
  return binary_backward_row<float>(op, which);
}
TernaryRow<double> binary_backward_row_f64(Binary op, int which) {
  return binary_backward_row<double>(op, which);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(binary_backward_row_f32);
HWY_EXPORT(binary_backward_row_f64);

namespace {

TernaryRow<float> row_of(Binary op, int which, float) {
  return HWY_DYNAMIC_DISPATCH(binary_backward_row_f32)(op, which);
}
TernaryRow<double> row_of(Binary op, int which, double) {
  return HWY_DYNAMIC_DISPATCH(binary_backward_row_f64)(op, which);
}

}  // namespace

template <class T>
void binary_backward(Binary op, int which, const Broadcast& shape, const T* u, const T* v,
                     const T* gy, T* g) {
  const TernaryRow<T> row = row_of(op, which, T());
  const int last = shape.rank - 1;
  std::int64_t s[3] = {};
  for (int k = 0; k < 3 && last >= 0; ++k) s[k] = shape.stride[k][last];
  for_rows(shape, 3, op == Binary::pow ? costly_grain : cheap_grain,
           [&](const std::int64_t* offset, std::int64_t at, std::int64_t n) {
             row(n, u + offset[0], s[0], v + offset[1], s[1], gy + offset[2], s[2], g + at);
           });
}

template <class T>
void where(const Broadcast& shape, const std::uint8_t* condition, const T* u, const T* v, T* y) {
  const T zero = 0;
  const int last = shape.rank - 1;
  std::int64_t s[3] = {};
  for (int k = 0; k < 3 && last >= 0; ++k) s[k] = shape.stride[k][last];
  if (!u) s[1] = 0;
  if (!v) s[2] = 0;
  for_rows(shape, 3, cheap_grain, [&](const std::int64_t* offset, std::int64_t at, std::int64_t n) {
    const std::uint8_t* c = condition + offset[0];
    const T* uu = u ? u + offset[1] : &zero;
    const T* vv = v ? v + offset[2] : &zero;
    if (s[0] == 1 && s[1] == 1 && s[2] == 1) {
      for (std::int64_t i = 0; i < n; ++i) y[at + i] = c[i] ? uu[i] : vv[i];
    } else {
      for (std::int64_t i = 0; i < n; ++i) y[at + i] = c[i * s[0]] ? uu[i * s[1]] : vv[i * s[2]];
    }
  });
}

#define INSTANTIATE(T)                                                                            \
  template void binary_backward(Binary, int, const Broadcast&, const T*, const T*, const T*, T*); \
  template void where(const Broadcast&, const std::uint8_t*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
