#include <lipgrad/ops/kernels/loss.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/cross_entropy_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/rows_cpu.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// log sum exp of a row, and its sum.
template <class T>
T lse_row(std::int64_t n, const T* x, T* sum) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V lowest(-std::numeric_limits<T>::infinity());
  V top = lowest, total(0.0), plain(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    top = quick_max(top, get(x + i, count, lowest));
    plain = plain + get(x + i, count);
  }
  const T highest = quick_max_of_lanes(top);
  for (std::int64_t i = 0; i < n; i += lanes)
    total = total + exp(get(x + i, std::min(lanes, n - i), lowest) - V(highest));
  *sum = sum_of_lanes(plain);
  return highest + std::log(sum_of_lanes(total));
}

// gx = scale (exp(x - lse) - rest) for a row.
template <class T>
void softmax_minus(std::int64_t n, const T* x, T lse, T scale, T rest, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    put(V(scale) * (exp(get(x + i, count) - V(lse)) - V(rest)), gx + i, count);
  }
}

// The sum of t (lse - x) over a row.
template <class T>
T soft_row(std::int64_t n, const T* x, const T* t, T* lse) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  T plain;
  *lse = lse_row(n, x, &plain);
  V total(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    total = total + get(t + i, count) * (V(*lse) - get(x + i, count));
  }
  return sum_of_lanes(total);
}

// gx = scale (exp(x - lse) sum(t) - t), gt = scale (lse - x) for a row.
template <class T>
void soft_backward_row(std::int64_t n, const T* x, const T* t, T lse, T scale, T* gx, T* gt) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  V total(0.0);
  for (std::int64_t i = 0; i < n; i += lanes) total = total + get(t + i, std::min(lanes, n - i));
  const V sum(sum_of_lanes(total));
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const V level = get(x + i, count) - V(lse), target = get(t + i, count);
    if (gx) put(V(scale) * (exp(level) * sum - target), gx + i, count);
    if (gt) put(V(-scale) * level, gt + i, count);
  }
}

}  // namespace

float lse_row_f32(std::int64_t n, const float* x, float* sum) { return lse_row(n, x, sum); }
double lse_row_f64(std::int64_t n, const double* x, double* sum) { return lse_row(n, x, sum); }
void softmax_minus_f32(std::int64_t n, const float* x, float lse, float scale, float rest,
                       float* gx) {
  softmax_minus(n, x, lse, scale, rest, gx);
}
void softmax_minus_f64(std::int64_t n, const double* x, double lse, double scale, double rest,
                       double* gx) {
  softmax_minus(n, x, lse, scale, rest, gx);
}
float soft_row_f32(std::int64_t n, const float* x, const float* t, float* lse) {
  return soft_row(n, x, t, lse);
}
double soft_row_f64(std::int64_t n, const double* x, const double* t, double* lse) {
  return soft_row(n, x, t, lse);
}
void soft_backward_row_f32(std::int64_t n, const float* x, const float* t, float lse, float scale,
                           float* gx, float* gt) {
  soft_backward_row(n, x, t, lse, scale, gx, gt);
}
void soft_backward_row_f64(std::int64_t n, const double* x, const double* t, double lse,
                           double scale, double* gx, double* gt) {
  soft_backward_row(n, x, t, lse, scale, gx, gt);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(lse_row_f32);
HWY_EXPORT(lse_row_f64);
HWY_EXPORT(softmax_minus_f32);
HWY_EXPORT(softmax_minus_f64);
HWY_EXPORT(soft_row_f32);
HWY_EXPORT(soft_row_f64);
HWY_EXPORT(soft_backward_row_f32);
HWY_EXPORT(soft_backward_row_f64);

namespace {

float lse_of(std::int64_t n, const float* x, float* sum) {
  return HWY_DYNAMIC_DISPATCH(lse_row_f32)(n, x, sum);
}
double lse_of(std::int64_t n, const double* x, double* sum) {
  return HWY_DYNAMIC_DISPATCH(lse_row_f64)(n, x, sum);
}
void gradient_row(std::int64_t n, const float* x, float lse, float scale, float rest, float* gx) {
  HWY_DYNAMIC_DISPATCH(softmax_minus_f32)(n, x, lse, scale, rest, gx);
}
void gradient_row(std::int64_t n, const double* x, double lse, double scale, double rest,
                  double* gx) {
  HWY_DYNAMIC_DISPATCH(softmax_minus_f64)(n, x, lse, scale, rest, gx);
}

}  // namespace

template <class T, class Label>
void cross_entropy(std::int64_t, std::int64_t count, std::int64_t cols, const T* x,
                   const std::int64_t* rows, const Label* labels, double smoothing, T* lse,
                   T* loss) {
  const double total = sum_of_blocks(
      count, rows_per_block(costly_grain, cols), [&](std::int64_t begin, std::int64_t end) {
        double sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t r = rows ? rows[i] : i;
          const T* row = x + r * cols;
          T plain;
          lse[i] = lse_of(cols, row, &plain);
          sum += (1 - smoothing) * (double(lse[i]) - double(row[labels[r]]));
          if (smoothing != 0) sum += smoothing * (double(lse[i]) - double(plain) / cols);
        }
        return sum;
      });
  *loss = static_cast<T>(total / count);
}

template <class T, class Label>
void cross_entropy_backward(std::int64_t total, std::int64_t count, std::int64_t cols, const T* x,
                            const std::int64_t* rows, const Label* labels, double smoothing,
                            const T* lse, const T* gy, T* gx) {
  // A gradient row has one owner: with chosen rows, count how often each is.
  std::vector<std::int32_t> times;
  std::vector<std::int64_t> position;
  if (rows) {
    times.resize(total);
    position.resize(total);
    for (std::int64_t i = 0; i < count; ++i) {
      ++times[rows[i]];
      position[rows[i]] = i;
    }
  }
  const double scale = double(*gy) / count;
  parallel_for(total, rows_per_block(costly_grain, cols),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   T* to = gx + r * cols;
                   const std::int64_t k = rows ? times[r] : r < count;
                   if (k == 0) {
                     std::fill(to, to + cols, T(0));
                     continue;
                   }
                   const T weight = static_cast<T>(scale * k);
                   gradient_row(cols, x + r * cols, lse[rows ? position[r] : r], weight,
                                static_cast<T>(smoothing / cols), to);
                   to[labels[r]] -= weight * static_cast<T>(1 - smoothing);
                 }
               });
}

template <class T>
void soft_cross_entropy(std::int64_t total, std::int64_t cols, const T* x, const T* t, T* lse,
                        T* loss) {
  const double sum = sum_of_blocks(
      total, rows_per_block(costly_grain, cols), [&](std::int64_t begin, std::int64_t end) {
        double part = 0;
        for (std::int64_t r = begin; r < end; ++r) {
          if constexpr (sizeof(T) == 4) {
            part += HWY_DYNAMIC_DISPATCH(soft_row_f32)(cols, x + r * cols, t + r * cols, lse + r);
          } else {
            part += HWY_DYNAMIC_DISPATCH(soft_row_f64)(cols, x + r * cols, t + r * cols, lse + r);
          }
        }
        return part;
      });
  *loss = static_cast<T>(sum / total);
}

template <class T>
void soft_cross_entropy_backward(std::int64_t total, std::int64_t cols, const T* x, const T* t,
                                 const T* lse, const T* gy, T* gx, T* gt) {
  const T scale = static_cast<T>(double(*gy) / total);
  parallel_for(total, rows_per_block(costly_grain, cols),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   const std::int64_t at = r * cols;
                   T *to_x = gx ? gx + at : nullptr, *to_t = gt ? gt + at : nullptr;
                   if constexpr (sizeof(T) == 4) {
                     HWY_DYNAMIC_DISPATCH(soft_backward_row_f32)
                     (cols, x + at, t + at, lse[r], scale, to_x, to_t);
                   } else {
                     HWY_DYNAMIC_DISPATCH(soft_backward_row_f64)
                     (cols, x + at, t + at, lse[r], scale, to_x, to_t);
                   }
                 }
               });
}

template <class T, class Label>
void count_correct(std::int64_t, std::int64_t count, std::int64_t cols, const T* x,
                   const std::int64_t* rows, const Label* labels, std::int64_t* correct) {
  const double total = sum_of_blocks(  // below 2^53: exact
      count, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
        std::int64_t hits = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t r = rows ? rows[i] : i;
          const T* row = x + r * cols;
          std::int64_t best = 0;
          for (std::int64_t c = 1; c < cols && row[best] == row[best]; ++c)
            if (row[c] > row[best] || row[c] != row[c]) best = c;
          hits += best == static_cast<std::int64_t>(labels[r]);
        }
        return static_cast<double>(hits);
      });
  *correct = static_cast<std::int64_t>(total);
}

#define INSTANTIATE(T, Label)                                                               \
  template void cross_entropy(std::int64_t, std::int64_t, std::int64_t, const T*,           \
                              const std::int64_t*, const Label*, double, T*, T*);           \
  template void count_correct(std::int64_t, std::int64_t, std::int64_t, const T*,           \
                              const std::int64_t*, const Label*, std::int64_t*);            \
  template void cross_entropy_backward(std::int64_t, std::int64_t, std::int64_t, const T*,  \
                                       const std::int64_t*, const Label*, double, const T*, \
                                       const T*, T*);
INSTANTIATE(float, std::int32_t)
INSTANTIATE(float, std::int64_t)
INSTANTIATE(double, std::int32_t)
INSTANTIATE(double, std::int64_t)
#undef INSTANTIATE
#define INSTANTIATE(T)                                                                      \
  template void soft_cross_entropy(std::int64_t, std::int64_t, const T*, const T*, T*, T*); \
  template void soft_cross_entropy_backward(std::int64_t, std::int64_t, const T*, const T*, \
                                            const T*, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
