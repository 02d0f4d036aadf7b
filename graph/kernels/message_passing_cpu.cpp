#include <lipgrad/graph/kernels/message_passing.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/message_passing_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/graph/kernels/edge_rows-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_MESSAGE_PASSING_CPU_ARGS
#define LIPGRAD_MESSAGE_PASSING_CPU_ARGS
namespace {
template <class T>
struct NeighborMaxArgs {
  std::int64_t rows, features;
  const std::int64_t* offsets;
  const std::int32_t* columns;
  const T* x;
  T* y;
  std::int32_t* argmax;
};
template <class T>
struct NeighborMaxBackwardArgs {
  std::int64_t rows, features;
  const std::int64_t* offsets;
  const std::int32_t *columns, *argmax;
  const T* gy;
  T* gx;
};
template <class T>
struct EdgeEndsArgs {
  std::int64_t rows, edges, features;
  const std::int64_t* offsets;
  const std::int32_t* columns;
  const T *x, *own;
  T* y;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void neighbor_max(const NeighborMaxArgs<T>& a) {
  reduce_rows(Maximum<T, std::int32_t>{a.features, a.columns, a.x, a.y, a.argmax}, a.rows,
              a.offsets, a.features);
}

template <class T>
struct MaximumBackward : Addition<T> {
  const NeighborMaxBackwardArgs<T>& a;
  using typename Addition<T>::Acc;

  explicit MaximumBackward(const NeighborMaxBackwardArgs<T>& args) : a(args) {}

  template <int V, class Lanes>
  HWY_INLINE void tile(const Stretch& s, std::int64_t column, Lanes lanes, Acc (&acc)[V]) const {
    for (int v = 0; v < V; ++v) acc[v] = Simd<T>(0.0);
    for (std::int64_t e = s.from; e < s.to; ++e) {
      const std::int64_t i = a.columns[e];
      if (e > s.begin && a.columns[e - 1] == i) continue;  // a repeated edge has one maximum
      for (int v = 0; v < V; ++v) {
        const std::int64_t at = i * a.features + column + v * Simd<T>::lanes();
        const auto here = equals<T>(load_index<T>(a.argmax + at, lanes), s.row);
        acc[v] = acc[v] + select(here, lanes.load(a.gy + at), Simd<T>(0.0));
      }
    }
  }
  template <class Lanes>
  HWY_INLINE void finish(const Stretch& s, std::int64_t column, Lanes lanes, Acc acc) const {
    lanes.store(acc, a.gx + s.row * a.features + column);
  }
  void finish_state(std::int64_t r, std::int64_t, std::int64_t column, double state) const {
    a.gx[r * a.features + column] = static_cast<T>(state);
  }
  void empty(std::int64_t r) const { std::fill_n(a.gx + r * a.features, a.features, T(0)); }
};

template <class T>
void neighbor_max_backward(const NeighborMaxBackwardArgs<T>& a) {
  reduce_rows(MaximumBackward<T>(a), a.rows, a.offsets, a.features);
}

template <class T>
void edge_ends(const EdgeEndsArgs<T>& a) {
  constexpr std::int64_t ahead = 16;
  each_stretch(
      a.rows, a.offsets, a.features,
      [&](std::int64_t r, std::int64_t, std::int64_t from, std::int64_t to) HWY_ATTR {
        const T* own = a.own ? a.own + r * a.features : nullptr;
        for (std::int64_t e = from; e < to; ++e) {
          if (e + ahead < a.edges) __builtin_prefetch(a.x + a.columns[e + ahead] * a.features);
          const T* x = a.x + a.columns[e] * a.features;
          T* y = a.y + e * a.features;
          each_tile<T>(a.features, [&](std::int64_t column, auto lanes, auto vectors) HWY_ATTR {
            for (int v = 0; v < decltype(vectors)::value; ++v, column += Simd<T>::lanes()) {
              Simd<T> value = lanes.load(x + column);
              if (own) value = value + lanes.load(own + column);
              lanes.store(value, y + column);
            }
          });
        }
      });
}

void edge_ends_f32(const EdgeEndsArgs<float>& a) { edge_ends(a); }
void edge_ends_f64(const EdgeEndsArgs<double>& a) { edge_ends(a); }
void neighbor_max_f32(const NeighborMaxArgs<float>& a) { neighbor_max(a); }
void neighbor_max_f64(const NeighborMaxArgs<double>& a) { neighbor_max(a); }
void neighbor_max_backward_f32(const NeighborMaxBackwardArgs<float>& a) {
  neighbor_max_backward(a);
}
void neighbor_max_backward_f64(const NeighborMaxBackwardArgs<double>& a) {
  neighbor_max_backward(a);
}

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(edge_ends_f32);
HWY_EXPORT(edge_ends_f64);
HWY_EXPORT(neighbor_max_f32);
HWY_EXPORT(neighbor_max_f64);
HWY_EXPORT(neighbor_max_backward_f32);
HWY_EXPORT(neighbor_max_backward_f64);

namespace {
void run(const EdgeEndsArgs<float>& a) { HWY_DYNAMIC_DISPATCH(edge_ends_f32)(a); }
void run(const EdgeEndsArgs<double>& a) { HWY_DYNAMIC_DISPATCH(edge_ends_f64)(a); }
void run(const NeighborMaxArgs<float>& a) { HWY_DYNAMIC_DISPATCH(neighbor_max_f32)(a); }
void run(const NeighborMaxArgs<double>& a) { HWY_DYNAMIC_DISPATCH(neighbor_max_f64)(a); }
void run(const NeighborMaxBackwardArgs<float>& a) {
  HWY_DYNAMIC_DISPATCH(neighbor_max_backward_f32)(a);
}
void run(const NeighborMaxBackwardArgs<double>& a) {
  HWY_DYNAMIC_DISPATCH(neighbor_max_backward_f64)(a);
}
}  // namespace

template <class T>
void neighbor_max(std::int64_t rows, std::int64_t, std::int64_t features,
                  const std::int64_t* offsets, const std::int32_t* columns, const T* x, T* y,
                  std::int32_t* argmax) {
  run(NeighborMaxArgs<T>{rows, features, offsets, columns, x, y, argmax});
}

template <class T>
void neighbor_max_backward(std::int64_t rows, std::int64_t, std::int64_t features,
                           const std::int64_t* offsets, const std::int32_t* columns,
                           const std::int32_t* argmax, const T* gy, T* gx) {
  run(NeighborMaxBackwardArgs<T>{rows, features, offsets, columns, argmax, gy, gx});
}

template <class T>
void edge_ends(std::int64_t rows, std::int64_t edges, std::int64_t features,
               const std::int64_t* offsets, const std::int32_t* columns, const T* x, const T* own,
               T* y) {
  run(EdgeEndsArgs<T>{rows, edges, features, offsets, columns, x, own, y});
}

#define INSTANTIATE(T)                                                                      \
  template void neighbor_max(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                             const std::int32_t*, const T*, T*, std::int32_t*);             \
  template void neighbor_max_backward(std::int64_t, std::int64_t, std::int64_t,             \
                                      const std::int64_t*, const std::int32_t*,             \
                                      const std::int32_t*, const T*, T*);                   \
  template void edge_ends(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,    \
                          const std::int32_t*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
