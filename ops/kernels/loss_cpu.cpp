#include <lipgrad/ops/kernels/loss.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/loss_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/map-inl.h>
#include <lipgrad/ops/kernels/rows_cpu.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

struct Bce {
  template <class V>
  HWY_INLINE V operator()(V x, V t) const {
    return max(x, V(0.0)) - x * t + log1p_unit(exp(-abs(x)));
  }
};
struct SquaredError {
  template <class V>
  HWY_INLINE V operator()(V x, V t) const {
    return (x - t) * (x - t);
  }
};
struct BceBackward {
  double a, b;
  template <class V>
  HWY_INLINE V operator()(V x, V t) const {
    V s, c;
    logistic(x, s, c);
    return V(a) * (s - t);
  }
};
struct BceTargetBackward {
  double a, b;
  template <class V>
  HWY_INLINE V operator()(V x, V) const {
    return V(-a) * x;
  }
};
struct SquaredErrorBackward {
  double a, b;
  template <class V>
  HWY_INLINE V operator()(V x, V t) const {
    return V(2 * a) * (x - t);
  }
};

// The sum of f(x[i], t[i]), pieces of 1024 added in double.
template <class F, class T>
double sum_row(std::int64_t n, const T* x, const T* t) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const F f{};
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 1024) {
    const std::int64_t end = std::min(n, start + 1024);
    V total(0.0);
    for (std::int64_t i = start; i < end; i += lanes) {
      const std::int64_t count = std::min(lanes, end - i);
      const V value = f(get(x + i, count), get(t + i, count));
      total = total + (count == lanes ? value : select(first_lanes<T>(count), value, V(0.0)));
    }
    sum += sum_of_lanes(total);
  }
  return sum;
}

}  // namespace

double bce_f32(std::int64_t n, const float* x, const float* t) { return sum_row<Bce>(n, x, t); }
double bce_f64(std::int64_t n, const double* x, const double* t) { return sum_row<Bce>(n, x, t); }
double squares_f32(std::int64_t n, const float* x, const float* t) {
  return sum_row<SquaredError>(n, x, t);
}
double squares_f64(std::int64_t n, const double* x, const double* t) {
  return sum_row<SquaredError>(n, x, t);
}

void bce_backward_f32(double a, bool target, std::int64_t n, const float* x, const float* t,
                      float* g) {
  (target ? map2_row<BceTargetBackward, float> : map2_row<BceBackward, float>)(a, 0, n, x, t, g);
}
void bce_backward_f64(double a, bool target, std::int64_t n, const double* x, const double* t,
                      double* g) {
  (target ? map2_row<BceTargetBackward, double> : map2_row<BceBackward, double>)(a, 0, n, x, t, g);
}
void squares_backward_f32(double a, std::int64_t n, const float* x, const float* t, float* g) {
  map2_row<SquaredErrorBackward>(a, 0, n, x, t, g);
}
void squares_backward_f64(double a, std::int64_t n, const double* x, const double* t, double* g) {
  map2_row<SquaredErrorBackward>(a, 0, n, x, t, g);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(bce_f32);
HWY_EXPORT(bce_f64);
HWY_EXPORT(squares_f32);
HWY_EXPORT(squares_f64);
HWY_EXPORT(bce_backward_f32);
HWY_EXPORT(bce_backward_f64);
HWY_EXPORT(squares_backward_f32);
HWY_EXPORT(squares_backward_f64);

template <class T>
void bce_with_logits(std::int64_t n, const T* x, const T* t, T* loss) {
  const double sum = sum_of_blocks(n, costly_grain, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (sizeof(T) == 4) {
      return HWY_DYNAMIC_DISPATCH(bce_f32)(end - begin, x + begin, t + begin);
    } else {
      return HWY_DYNAMIC_DISPATCH(bce_f64)(end - begin, x + begin, t + begin);
    }
  });
  *loss = static_cast<T>(sum / n);
}

template <class T>
void bce_with_logits_backward(std::int64_t n, const T* x, const T* t, const T* gy, T* gx, T* gt) {
  const double scale = double(*gy) / n;
  parallel_for(n, costly_grain, [&](std::int64_t begin, std::int64_t end) {
    for (T* g : {gx, gt}) {
      if (!g) continue;
      if constexpr (sizeof(T) == 4) {
        HWY_DYNAMIC_DISPATCH(bce_backward_f32)
        (scale, g == gt, end - begin, x + begin, t + begin, g + begin);
      } else {
        HWY_DYNAMIC_DISPATCH(bce_backward_f64)
        (scale, g == gt, end - begin, x + begin, t + begin, g + begin);
      }
    }
  });
}

template <class T>
void mse(std::int64_t n, const T* x, const T* t, T* loss) {
  const double sum = sum_of_blocks(n, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (sizeof(T) == 4) {
      return HWY_DYNAMIC_DISPATCH(squares_f32)(end - begin, x + begin, t + begin);
    } else {
      return HWY_DYNAMIC_DISPATCH(squares_f64)(end - begin, x + begin, t + begin);
    }
  });
  *loss = static_cast<T>(sum / n);
}

template <class T>
void mse_backward(std::int64_t n, const T* x, const T* t, const T* gy, T* gx, T* gt) {
  const double scale = double(*gy) / n;
  parallel_for(n, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
    for (T* g : {gx, gt}) {
      if (!g) continue;
      const double signed_scale = g == gt ? -scale : scale;
      if constexpr (sizeof(T) == 4) {
        HWY_DYNAMIC_DISPATCH(squares_backward_f32)
        (signed_scale, end - begin, x + begin, t + begin, g + begin);
      } else {
        HWY_DYNAMIC_DISPATCH(squares_backward_f64)
        (signed_scale, end - begin, x + begin, t + begin, g + begin);
      }
    }
  });
}

#define INSTANTIATE(T)                                                                        \
  template void bce_with_logits(std::int64_t, const T*, const T*, T*);                        \
  template void bce_with_logits_backward(std::int64_t, const T*, const T*, const T*, T*, T*); \
  template void mse(std::int64_t, const T*, const T*, T*);                                    \
  template void mse_backward(std::int64_t, const T*, const T*, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
