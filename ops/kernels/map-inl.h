// Rows of elementwise maps for one Highway target: the loops around the functors of functors.h.
// Included as simd-inl.h is. A result depends on the values alone, not on their position in the
// row.

#if defined(LIPGRAD_OPS_KERNELS_MAP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_OPS_KERNELS_MAP_INL_H
#undef LIPGRAD_OPS_KERNELS_MAP_INL_H
#else
#define LIPGRAD_OPS_KERNELS_MAP_INL_H
#endif

#include <lipgrad/ops/kernels/simd-inl.h>
// After simd-inl.h: that is how it knows that it is meant for vectors.
#include <lipgrad/ops/kernels/functors.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// y[i] = f(x[i])
template <class F, class T>
void map_row(double a, double b, std::int64_t n, const T* x, T* y) {
  const F f{a, b};
  const std::int64_t lanes = Simd<T>::lanes();
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(f(load(x + i)), y + i);
  if (i < n) store_part(f(load_part(x + i, n - i)), y + i, n - i);
}

// y[i] = f(s[i], g[i])
template <class F, class T>
void map2_row(double a, double b, std::int64_t n, const T* s, const T* g, T* y) {
  const F f{a, b};
  const std::int64_t lanes = Simd<T>::lanes();
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(f(load(s + i), load(g + i)), y + i);
  if (i < n) store_part(f(load_part(s + i, n - i), load_part(g + i, n - i)), y + i, n - i);
}

// An operand that is one value for the whole row is read from a buffer of copies, with step 0.
template <class T>
struct RowOperand {
  HWY_ALIGN T copies[HWY_MAX_BYTES / sizeof(T)];
  const T* p;
  std::int64_t step;

  HWY_INLINE RowOperand(const T* from, std::int64_t stride) : p(from), step(stride) {
    if (stride != 0) return;
    hn::Store(hn::Set(hn::ScalableTag<T>(), *from), hn::ScalableTag<T>(), copies);
    p = copies;
  }
  HWY_INLINE Simd<T> at(std::int64_t i) const { return load(p + i * step); }
  HWY_INLINE Simd<T> part(std::int64_t i, std::int64_t count) const {
    return load_part(p + i * step, count);
  }
};

// y[i] = f(u[i su], v[i sv]); strides are 0 or 1.
template <class F, class T>
void binary_row(std::int64_t n, const T* u, std::int64_t su, const T* v, std::int64_t sv, T* y) {
  const F f{0, 0};
  const std::int64_t lanes = Simd<T>::lanes();
  const RowOperand<T> uu(u, su), vv(v, sv);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(f(uu.at(i), vv.at(i)), y + i);
  if (i < n) store_part(f(uu.part(i, n - i), vv.part(i, n - i)), y + i, n - i);
}

// y[i] = f(u[i su], v[i sv], g[i sg])
template <class F, class T>
void ternary_row(std::int64_t n, const T* u, std::int64_t su, const T* v, std::int64_t sv,
                 const T* g, std::int64_t sg, T* y) {
  const F f{};
  const std::int64_t lanes = Simd<T>::lanes();
  const RowOperand<T> uu(u, su), vv(v, sv), gg(g, sg);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(f(uu.at(i), vv.at(i), gg.at(i)), y + i);
  if (i < n) store_part(f(uu.part(i, n - i), vv.part(i, n - i), gg.part(i, n - i)), y + i, n - i);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
