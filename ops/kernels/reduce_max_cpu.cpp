// The reductions that begin with the largest element: max and logsumexp.

#include <lipgrad/ops/kernels/reduce.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/reduce_max_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/softmax_rows_cpu.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// The largest element of a piece of a row; NaN if there is one.
template <class T>
T top_of(std::int64_t n, const T* x) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V lowest(-std::numeric_limits<double>::infinity());
  V top = lowest;
  for (std::int64_t i = 0; i < n; i += lanes)
    top = max(top, get(x + i, std::min(lanes, n - i), lowest));
  return hn::AllFalse(hn::ScalableTag<T>(), is_nan(top).raw) ? quick_max_of_lanes(top)
                                                             : std::numeric_limits<T>::quiet_NaN();
}

template <class T>
double exp_sum_of(std::int64_t n, const T* x, T top) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V lowest(-std::numeric_limits<double>::infinity()), shift(top);
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 1024) {
    const std::int64_t end = std::min(n, start + 1024);
    V total(0.0);
    for (std::int64_t i = start; i < end; i += lanes)
      total = total + exp(get(x + i, std::min(lanes, end - i), lowest) - shift);
    sum += sum_of_lanes(total);
  }
  return sum;
}

// Up to lanes() columns of an array with rows ld apart.
template <class T>
void lse_columns(std::int64_t n, std::int64_t ld, std::int64_t width, const T* x, T* y) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V infinity(std::numeric_limits<double>::infinity());
  for (std::int64_t c = 0; c < width; c += lanes) {
    const std::int64_t count = std::min(lanes, width - c);
    V top = -infinity, sum(0.0);
    for (std::int64_t i = 0; i < n * ld; i += ld) top = max(top, get(x + c + i, count));
    const auto plain = abs(top) < infinity;
    for (std::int64_t i = 0; i < n * ld; i += ld) sum = sum + exp(get(x + c + i, count) - top);
    put(select(plain, top + log(sum), top), y + c, count);
  }
}

template <class T>
void lse_backward_row(std::int64_t n, const T* x, T y, T gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V shift(y), g(gy);
  const bool dead = y == -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    put(dead ? V(0.0) : g * exp(get(x + i, count) - shift), gx + i, count);
  }
}

// gx(n, ld) for a group of columns.
template <class T>
void lse_backward_columns(std::int64_t n, std::int64_t ld, std::int64_t width, const T* x,
                          const T* y, const T* gy, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t c = 0; c < width; c += lanes) {
    const std::int64_t count = std::min(lanes, width - c);
    const V shift = get(y + c, count), g = get(gy + c, count);
    const auto dead = shift == V(-std::numeric_limits<double>::infinity());
    for (std::int64_t i = c; i < n * ld; i += ld)
      put(select(dead, V(0.0), g * exp(get(x + i, count) - shift)), gx + i, count);
  }
}

template <class T>
MaxRows<T> table() {
  return {top_of<T>, exp_sum_of<T>, lse_columns<T>, lse_backward_row<T>, lse_backward_columns<T>};
}

}  // namespace

MaxRows<float> max_rows_f32() { return table<float>(); }
MaxRows<double> max_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(max_rows_f32);
HWY_EXPORT(max_rows_f64);

namespace {

MaxRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(max_rows_f32)(); }
MaxRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(max_rows_f64)(); }

// The largest element of a row of any length.
template <class T>
T top_of_row(const MaxRows<T>& f, std::int64_t n, const T* x) {
  if (n <= cheap_grain) return f.top(n, x);
  std::vector<T> tops((n + cheap_grain - 1) / cheap_grain);
  parallel_for(n, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
    tops[begin / cheap_grain] = f.top(end - begin, x + begin);
  });
  return f.top(static_cast<std::int64_t>(tops.size()), tops.data());
}

template <class T>
T logsumexp_of_row(const MaxRows<T>& f, std::int64_t n, const T* x) {
  const T top = top_of_row(f, n, x);
  if (!(std::abs(top) < std::numeric_limits<T>::infinity())) return top;
  const double sum = sum_of_blocks(n, costly_grain, [&](std::int64_t begin, std::int64_t end) {
    return f.exp_sum(end - begin, x + begin, top);
  });
  return static_cast<T>(top + std::log(sum));
}

// Calls f(row) for every row: long rows one after the other, cut by f itself.
template <class F>
void for_each_row(std::int64_t rows, std::int64_t n, std::int64_t grain, F f) {
  parallel_for(rows, n > grain ? rows : rows_per_block(grain, n),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) f(r);
               });
}

// Whether b takes the place of a as the largest so far.
template <class T>
bool beats(T b, T a) {
  return b > a || (b != b && a == a);
}

}  // namespace

template <class T>
void max(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x, T* y,
         std::int64_t* index) {
  if (outer == 0 || inner == 0) return;
  if (inner == 1) {
    const MaxRows<T> f = rows_of(T());
    for_each_row(outer, n, cheap_grain, [&](std::int64_t r) {
      const T* row = x + r * n;
      const T top = top_of_row(f, n, row);
      std::int64_t i = 0;
      while (row[i] != top && row[i] == row[i]) ++i;
      y[r] = row[i];
      index[r] = i;
    });
    return;
  }
  parallel_for(outer, rows_per_block(cheap_grain, n * inner),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t o = begin; o < end; ++o) {
                   T* best = y + o * inner;
                   std::int64_t* at = index + o * inner;
                   std::copy(x + o * n * inner, x + o * n * inner + inner, best);
                   std::fill(at, at + inner, std::int64_t{0});
                   for (std::int64_t i = 1; i < n; ++i) {
                     const T* row = x + (o * n + i) * inner;
                     for (std::int64_t c = 0; c < inner; ++c) {
                       if (!beats(row[c], best[c])) continue;
                       best[c] = row[c];
                       at[c] = i;
                     }
                   }
                 }
               });
}

template <class T>
void max_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const std::int64_t* index,
                  const T* gy, T* gx) {
  parallel_for(outer, rows_per_block(cheap_grain, n * inner),
               [&](std::int64_t begin, std::int64_t end) {
                 std::fill(gx + begin * n * inner, gx + end * n * inner, T(0));
                 for (std::int64_t o = begin; o < end; ++o)
                   for (std::int64_t c = 0; c < inner; ++c)
                     gx[(o * n + index[o * inner + c]) * inner + c] = gy[o * inner + c];
               });
}

template <class T>
void logsumexp(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x, T* y) {
  if (n == 0) return std::fill(y, y + outer * inner, -std::numeric_limits<T>::infinity());
  const MaxRows<T> f = rows_of(T());
  if (inner == 1) {
    return for_each_row(outer, n, costly_grain,
                        [&](std::int64_t r) { y[r] = logsumexp_of_row(f, n, x + r * n); });
  }
  for_groups(
      outer, n, inner, costly_grain, [](std::int64_t, std::int64_t) {},
      [&](std::int64_t at, std::int64_t width) {
        f.columns(n, inner, width, x + at, y + at / (n * inner) * inner + at % inner);
      });
}

template <class T>
void logsumexp_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, const T* x,
                        const T* y, const T* gy, T* gx) {
  const MaxRows<T> f = rows_of(T());
  if (inner == 1) {
    return for_each_row(outer, n, costly_grain, [&](std::int64_t r) {
      parallel_for(n, costly_grain, [&](std::int64_t begin, std::int64_t end) {
        f.backward_row(end - begin, x + r * n + begin, y[r], gy[r], gx + r * n + begin);
      });
    });
  }
  for_groups(
      outer, n, inner, costly_grain, [](std::int64_t, std::int64_t) {},
      [&](std::int64_t at, std::int64_t width) {
        const std::int64_t small = at / (n * inner) * inner + at % inner;
        f.backward_columns(n, inner, width, x + at, y + small, gy + small, gx + at);
      });
}

#define INSTANTIATE(T)                                                                           \
  template void max(std::int64_t, std::int64_t, std::int64_t, const T*, T*, std::int64_t*);      \
  template void max_backward(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,      \
                             const T*, T*);                                                      \
  template void logsumexp(std::int64_t, std::int64_t, std::int64_t, const T*, T*);               \
  template void logsumexp_backward(std::int64_t, std::int64_t, std::int64_t, const T*, const T*, \
                                   const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
