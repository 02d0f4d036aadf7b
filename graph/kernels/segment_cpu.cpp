#include <lipgrad/graph/kernels/segment.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/segment_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/graph/kernels/edge_rows-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_SEGMENT_CPU_ARGS
#define LIPGRAD_SEGMENT_CPU_ARGS
namespace {
// Of all kernels of the family; each reads what it needs.
template <class T>
struct SegmentArgs {
  std::int64_t segments, features;
  const std::int64_t* offsets;
  const std::int64_t* order = nullptr;
  bool mean = false;
  const T *x = nullptr, *y = nullptr, *gy = nullptr;
  T* out = nullptr;
  std::int64_t* argmax = nullptr;
  const std::int64_t* best = nullptr;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
struct SegmentSum : Addition<T> {
  const SegmentArgs<T>& a;
  using typename Addition<T>::Acc;

  explicit SegmentSum(const SegmentArgs<T>& args) : a(args) {}

  template <int V, class Lanes>
  HWY_INLINE void tile(const Stretch& s, std::int64_t column, Lanes lanes, Acc (&acc)[V]) const {
    const auto row = [&](std::int64_t e) {
      return a.x + (a.order ? a.order[e] : e) * a.features + column;
    };
    for (int v = 0; v < V; ++v) acc[v] = Simd<T>(0.0);
    for (std::int64_t e = s.from; e < s.to; ++e) {
      if (a.order && e + 8 < s.to) __builtin_prefetch(row(e + 8));
      const T* from = row(e);
      for (int v = 0; v < V; ++v) acc[v] = acc[v] + lanes.load(from + v * Simd<T>::lanes());
    }
  }
  template <class Lanes>
  HWY_INLINE void finish(const Stretch& s, std::int64_t column, Lanes lanes, Acc acc) const {
    if (a.mean) acc = acc / Simd<T>(static_cast<double>(s.to - s.from));
    lanes.store(acc, a.out + s.row * a.features + column);
  }
  void finish_state(std::int64_t r, std::int64_t count, std::int64_t column, double state) const {
    if (a.mean) state /= static_cast<double>(count);
    a.out[r * a.features + column] = static_cast<T>(state);
  }
  void empty(std::int64_t r) const { std::fill_n(a.out + r * a.features, a.features, T(0)); }
};

// What exponents are taken from: the largest, unless it is infinite.
template <class T>
HWY_INLINE Simd<T> shift_of(Simd<T> top) {
  return select(abs(top) < Simd<T>(std::numeric_limits<double>::infinity()), top, Simd<T>(0.0));
}
inline double shift_of(double top) { return std::isfinite(top) ? top : 0; }

template <class T>
struct LogSumExp {
  using Value = T;
  struct State {
    double top, sum;  // the sum of exp(x - shift_of(top))
  };
  struct Acc {
    Simd<T> top, sum;
  };
  const SegmentArgs<T>& a;

  template <int V, class Lanes>
  HWY_INLINE void tile(const Stretch& s, std::int64_t column, Lanes lanes, Acc (&acc)[V]) const {
    const std::int64_t size = Simd<T>::lanes();
    const T* first = a.x + s.from * a.features + column;
    for (int v = 0; v < V; ++v) acc[v] = {lanes.load(first + v * size), Simd<T>(0.0)};
    for (const T* x = first + a.features; x < first + (s.to - s.from) * a.features; x += a.features)
      for (int v = 0; v < V; ++v) acc[v].top = max(acc[v].top, lanes.load(x + v * size));
    for (int v = 0; v < V; ++v) {
      const Simd<T> shift = shift_of(acc[v].top);
      for (const T* x = first; x < first + (s.to - s.from) * a.features; x += a.features)
        acc[v].sum = acc[v].sum + exp(lanes.load(x + v * size) - shift);
    }
  }
  template <class Lanes>
  HWY_INLINE void finish(const Stretch& s, std::int64_t column, Lanes lanes, const Acc& acc) const {
    lanes.store(log(acc.sum) + shift_of(acc.top), a.out + s.row * a.features + column);
  }
  template <class Lanes>
  void states(const Stretch&, const Acc& acc, Lanes lanes, State* states) const {
    HWY_ALIGN T top[HWY_MAX_BYTES / sizeof(T)];
    HWY_ALIGN T sum[HWY_MAX_BYTES / sizeof(T)];
    store(acc.top, top);
    store(acc.sum, sum);
    for (std::int64_t i = 0; i < lanes.count(); ++i)
      states[i] = {static_cast<double>(top[i]), static_cast<double>(sum[i])};
  }
  static State merge(const State& a, const State& b) {
    if (a.sum == 0) return b;
    if (b.sum == 0) return a;
    const double top = std::isnan(a.top) || a.top > b.top ? a.top : b.top, shift = shift_of(top);
    return {top,
            a.sum * std::exp(shift_of(a.top) - shift) + b.sum * std::exp(shift_of(b.top) - shift)};
  }
  void finish_state(std::int64_t r, std::int64_t, std::int64_t column, const State& state) const {
    a.out[r * a.features + column] = static_cast<T>(std::log(state.sum) + shift_of(state.top));
  }
  void empty(std::int64_t r) const { std::fill_n(a.out + r * a.features, a.features, T(0)); }
};

template <class T>
void segment_sum(const SegmentArgs<T>& a) {
  reduce_rows(SegmentSum<T>(a), a.segments, a.offsets, a.features);
}
template <class T>
void segment_max(const SegmentArgs<T>& a) {
  reduce_rows(Maximum<T, std::int64_t>{a.features, nullptr, a.x, a.out, a.argmax}, a.segments,
              a.offsets, a.features);
}
template <class T>
void segment_logsumexp(const SegmentArgs<T>& a) {
  reduce_rows(LogSumExp<T>{a}, a.segments, a.offsets, a.features);
}

template <class T>
void segment_spread(const SegmentArgs<T>& a) {
  each_stretch(
      a.segments, a.offsets, a.features,
      [&](std::int64_t s, std::int64_t count, std::int64_t from, std::int64_t to) HWY_ATTR {
        each_tile<T>(a.features, [&](std::int64_t column, auto lanes, auto vectors) HWY_ATTR {
          for (int v = 0; v < decltype(vectors)::value; ++v, column += Simd<T>::lanes()) {
            Simd<T> value = lanes.load(a.x + s * a.features + column);
            if (a.mean) value = value / Simd<T>(static_cast<double>(count));
            for (std::int64_t e = from; e < to; ++e)
              lanes.store(value, a.out + e * a.features + column);
          }
        });
      });
}

template <class T>
void segment_max_backward(const SegmentArgs<T>& a) {
  each_stretch(a.segments, a.offsets, a.features,
               [&](std::int64_t s, std::int64_t, std::int64_t from, std::int64_t to) {
                 std::fill(a.out + from * a.features, a.out + to * a.features, T(0));
                 for (std::int64_t c = s * a.features; c < (s + 1) * a.features; ++c) {
                   const std::int64_t e = a.best[c];
                   if (e >= from && e < to) a.out[e * a.features + c - s * a.features] = a.gy[c];
                 }
               });
}

template <class T>
void segment_logsumexp_backward(const SegmentArgs<T>& a) {
  each_stretch(
      a.segments, a.offsets, a.features,
      [&](std::int64_t s, std::int64_t, std::int64_t from, std::int64_t to) HWY_ATTR {
        each_tile<T>(a.features, [&](std::int64_t column, auto lanes, auto vectors) HWY_ATTR {
          for (int v = 0; v < decltype(vectors)::value; ++v, column += Simd<T>::lanes()) {
            const Simd<T> y = lanes.load(a.y + s * a.features + column),
                          gy = lanes.load(a.gy + s * a.features + column);
            const auto none = y == Simd<T>(-std::numeric_limits<double>::infinity());
            for (std::int64_t e = from; e < to; ++e) {
              const std::int64_t at = e * a.features + column;
              const Simd<T> g = gy * exp(lanes.load(a.x + at) - y);
              lanes.store(select(none, Simd<T>(0.0), g), a.out + at);
            }
          }
        });
      });
}

#define LIPGRAD_SEGMENT(kernel)                                        \
  void kernel##_f32(const SegmentArgs<float>& a) { kernel<float>(a); } \
  void kernel##_f64(const SegmentArgs<double>& a) { kernel<double>(a); }
LIPGRAD_SEGMENT(segment_sum)
LIPGRAD_SEGMENT(segment_max)
LIPGRAD_SEGMENT(segment_logsumexp)
LIPGRAD_SEGMENT(segment_spread)
LIPGRAD_SEGMENT(segment_max_backward)
LIPGRAD_SEGMENT(segment_logsumexp_backward)
#undef LIPGRAD_SEGMENT

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

#define LIPGRAD_SEGMENT(kernel)                                                                    \
  HWY_EXPORT(kernel##_f32);                                                                        \
  HWY_EXPORT(kernel##_f64);                                                                        \
  static void run_##kernel(const SegmentArgs<float>& a) { HWY_DYNAMIC_DISPATCH(kernel##_f32)(a); } \
  static void run_##kernel(const SegmentArgs<double>& a) { HWY_DYNAMIC_DISPATCH(kernel##_f64)(a); }
LIPGRAD_SEGMENT(segment_sum)
LIPGRAD_SEGMENT(segment_max)
LIPGRAD_SEGMENT(segment_logsumexp)
LIPGRAD_SEGMENT(segment_spread)
LIPGRAD_SEGMENT(segment_max_backward)
LIPGRAD_SEGMENT(segment_logsumexp_backward)
#undef LIPGRAD_SEGMENT

template <class T>
void segment_sum(std::int64_t segments, std::int64_t, std::int64_t features,
                 const std::int64_t* offsets, const std::int64_t* order, bool mean, const T* x,
                 T* y) {
  SegmentArgs<T> a{segments, features, offsets, order, mean};
  a.x = x;
  a.out = y;
  run_segment_sum(a);
}

template <class T>
void segment_max(std::int64_t segments, std::int64_t, std::int64_t features,
                 const std::int64_t* offsets, const T* x, T* y, std::int64_t* argmax) {
  SegmentArgs<T> a{segments, features, offsets};
  a.x = x;
  a.out = y;
  a.argmax = argmax;
  run_segment_max(a);
}

template <class T>
void segment_logsumexp(std::int64_t segments, std::int64_t, std::int64_t features,
                       const std::int64_t* offsets, const T* x, T* y) {
  SegmentArgs<T> a{segments, features, offsets};
  a.x = x;
  a.out = y;
  run_segment_logsumexp(a);
}

template <class T>
void segment_spread(std::int64_t segments, std::int64_t, std::int64_t features,
                    const std::int64_t* offsets, bool mean, const T* x, T* y) {
  SegmentArgs<T> a{segments, features, offsets, nullptr, mean};
  a.x = x;
  a.out = y;
  run_segment_spread(a);
}

template <class T>
void segment_max_backward(std::int64_t segments, std::int64_t, std::int64_t features,
                          const std::int64_t* offsets, const std::int64_t* argmax, const T* gy,
                          T* gx) {
  SegmentArgs<T> a{segments, features, offsets};
  a.best = argmax;
  a.gy = gy;
  a.out = gx;
  run_segment_max_backward(a);
}

template <class T>
void segment_logsumexp_backward(std::int64_t segments, std::int64_t, std::int64_t features,
                                const std::int64_t* offsets, const T* x, const T* y, const T* gy,
                                T* gx) {
  SegmentArgs<T> a{segments, features, offsets};
  a.x = x;
  a.y = y;
  a.gy = gy;
  a.out = gx;
  run_segment_logsumexp_backward(a);
}

#define INSTANTIATE(T)                                                                           \
  template void segment_sum(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,       \
                            const std::int64_t*, bool, const T*, T*);                            \
  template void segment_max(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,       \
                            const T*, T*, std::int64_t*);                                        \
  template void segment_logsumexp(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                                  const T*, T*);                                                 \
  template void segment_spread(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,    \
                               bool, const T*, T*);                                              \
  template void segment_max_backward(std::int64_t, std::int64_t, std::int64_t,                   \
                                     const std::int64_t*, const std::int64_t*, const T*, T*);    \
  template void segment_logsumexp_backward(std::int64_t, std::int64_t, std::int64_t,             \
                                           const std::int64_t*, const T*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
