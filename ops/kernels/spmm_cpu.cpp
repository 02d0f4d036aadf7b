#include <lipgrad/ops/kernels/spmm.h>

#include <algorithm>

#include <lipgrad/core/threads.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/spmm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
struct Sparse {
  const std::int64_t* offsets;
  const std::int32_t* columns;
  const std::int64_t* order;
  const T* values;

  HWY_INLINE T value(std::int64_t e) const { return values ? values[order ? order[e] : e] : T(1); }
};

constexpr std::int64_t ahead = 8;  // entries between a row's prefetch and its use

// V vectors of one row of the result, from feature `at` on.
template <int V, class T>
HWY_INLINE void row_tile(const Sparse<T>& a, std::int64_t begin, std::int64_t end, const T* x,
                         std::int64_t ldx, T* y) {
  const std::int64_t lanes = Simd<T>::lanes();
  Simd<T> sum[V];
  for (int v = 0; v < V; ++v) sum[v] = Simd<T>(0.0);
  for (std::int64_t e = begin; e < end; ++e) {
    if (e + ahead < end) {
      const T* later = x + a.columns[e + ahead] * ldx;
      for (int v = 0; v < V; ++v)
        if (v * lanes * static_cast<std::int64_t>(sizeof(T)) % 64 == 0)
          __builtin_prefetch(later + v * lanes);
    }
    const T* from = x + a.columns[e] * ldx;
    const Simd<T> value(hn::Set(hn::ScalableTag<T>(), a.value(e)));
    for (int v = 0; v < V; ++v) sum[v] = fma(value, load(from + v * lanes), sum[v]);
  }
  for (int v = 0; v < V; ++v) store(sum[v], y + v * lanes);
}

template <class T>
HWY_INLINE void row_part(const Sparse<T>& a, std::int64_t begin, std::int64_t end, const T* x,
                         std::int64_t ldx, T* y, std::int64_t count) {
  Simd<T> sum(0.0);
  for (std::int64_t e = begin; e < end; ++e) {
    const Simd<T> value(hn::Set(hn::ScalableTag<T>(), a.value(e)));
    sum = fma(value, load_part(x + a.columns[e] * ldx, count), sum);
  }
  store_part(sum, y, count);
}

template <class T>
void spmm_rows(std::int64_t begin, std::int64_t end, std::int64_t features, Sparse<T> a, const T* x,
               std::int64_t ldx, T* y, std::int64_t ldy) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t e0 = a.offsets[i], e1 = a.offsets[i + 1];
    T* to = y + i * ldy;
    std::int64_t at = 0;
    for (; at + 8 * lanes <= features; at += 8 * lanes)
      row_tile<8>(a, e0, e1, x + at, ldx, to + at);
    if (at + 4 * lanes <= features) {
      row_tile<4>(a, e0, e1, x + at, ldx, to + at);
      at += 4 * lanes;
    }
    if (at + 2 * lanes <= features) {
      row_tile<2>(a, e0, e1, x + at, ldx, to + at);
      at += 2 * lanes;
    }
    if (at + lanes <= features) {
      row_tile<1>(a, e0, e1, x + at, ldx, to + at);
      at += lanes;
    }
    if (at < features) row_part(a, e0, e1, x + at, ldx, to + at, features - at);
  }
}

template <class T>
HWY_INLINE T dot(std::int64_t n, const T* u, const T* v) {
  const std::int64_t lanes = Simd<T>::lanes();
  Simd<T> s0(0.0), s1(0.0);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    s0 = fma(load(u + i), load(v + i), s0);
    s1 = fma(load(u + i + lanes), load(v + i + lanes), s1);
  }
  if (i + lanes <= n) {
    s0 = fma(load(u + i), load(v + i), s0);
    i += lanes;
  }
  if (i < n) s1 = fma(load_part(u + i, n - i), load_part(v + i, n - i), s1);
  return sum_of_lanes(s0 + s1);
}

template <class T>
void dot_rows(std::int64_t begin, std::int64_t end, std::int64_t features,
              const std::int64_t* offsets, const std::int32_t* columns, const T* gy,
              std::int64_t ldgy, const T* x, std::int64_t ldx, T* gvalues) {
  for (std::int64_t i = begin; i < end; ++i)
    for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
      if (e + ahead < offsets[i + 1]) __builtin_prefetch(x + columns[e + ahead] * ldx);
      gvalues[e] = dot(features, gy + i * ldgy, x + columns[e] * ldx);
    }
}

}  // namespace

#define LIPGRAD_SPMM(suffix, T)                                                                 \
  void spmm_rows_##suffix(std::int64_t begin, std::int64_t end, std::int64_t features,          \
                          const std::int64_t* offsets, const std::int32_t* columns,             \
                          const std::int64_t* order, const T* values, const T* x,               \
                          std::int64_t ldx, T* y, std::int64_t ldy) {                           \
    spmm_rows<T>(begin, end, features, {offsets, columns, order, values}, x, ldx, y, ldy);      \
  }                                                                                             \
  void dot_rows_##suffix(std::int64_t begin, std::int64_t end, std::int64_t features,           \
                         const std::int64_t* offsets, const std::int32_t* columns, const T* gy, \
                         std::int64_t ldgy, const T* x, std::int64_t ldx, T* gvalues) {         \
    dot_rows<T>(begin, end, features, offsets, columns, gy, ldgy, x, ldx, gvalues);             \
  }
LIPGRAD_SPMM(f32, float)
LIPGRAD_SPMM(f64, double)
#undef LIPGRAD_SPMM

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(spmm_rows_f32);
HWY_EXPORT(spmm_rows_f64);
HWY_EXPORT(dot_rows_f32);
HWY_EXPORT(dot_rows_f64);

namespace {

auto spmm_rows_of(float) { return HWY_DYNAMIC_DISPATCH(spmm_rows_f32); }
auto spmm_rows_of(double) { return HWY_DYNAMIC_DISPATCH(spmm_rows_f64); }
auto dot_rows_of(float) { return HWY_DYNAMIC_DISPATCH(dot_rows_f32); }
auto dot_rows_of(double) { return HWY_DYNAMIC_DISPATCH(dot_rows_f64); }

// Calls f(begin, end) for blocks of rows with about as many entries each. A row's result does not
// depend on the blocks.
template <class F>
void for_row_blocks(std::int64_t rows, std::int64_t features, const std::int64_t* offsets, F f) {
  constexpr std::int64_t block_work = 1 << 16;     // multiply-adds: some 10 microseconds
  const std::int64_t work = offsets[rows] + rows;  // an empty row costs something too
  const std::int64_t share =
      std::max<std::int64_t>(1, block_work / std::max<std::int64_t>(features, 1));
  const std::int64_t blocks = (work + share - 1) / share;
  const auto first_row = [&](std::int64_t block) {
    if (block == blocks) return rows;
    std::int64_t low = 0, high = rows;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (offsets[middle] + middle < block * share) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  parallel_for(blocks, 1, [&](std::int64_t block, std::int64_t) {
    const std::int64_t begin = first_row(block), end = first_row(block + 1);
    if (begin < end) f(begin, end);
  });
}

}  // namespace

template <class T>
void spmm(std::int64_t rows, std::int64_t, std::int64_t, std::int64_t features,
          const std::int64_t* offsets, const std::int32_t* columns, const std::int64_t* order,
          const T* values, const T* x, std::int64_t ldx, T* y, std::int64_t ldy) {
  const auto kernel = spmm_rows_of(T());
  for_row_blocks(rows, features, offsets, [&](std::int64_t begin, std::int64_t end) {
    kernel(begin, end, features, offsets, columns, order, values, x, ldx, y, ldy);
  });
}

template <class T>
void spmm_backward_values(std::int64_t rows, std::int64_t, std::int64_t features,
                          const std::int64_t* offsets, const std::int32_t* columns, const T* gy,
                          std::int64_t ldgy, const T* x, std::int64_t ldx, T* gvalues) {
  const auto kernel = dot_rows_of(T());
  for_row_blocks(rows, features, offsets, [&](std::int64_t begin, std::int64_t end) {
    kernel(begin, end, features, offsets, columns, gy, ldgy, x, ldx, gvalues);
  });
}

#define INSTANTIATE(T)                                                                            \
  template void spmm(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                     const std::int32_t*, const std::int64_t*, const T*, const T*, std::int64_t,  \
                     T*, std::int64_t);                                                           \
  template void spmm_backward_values(std::int64_t, std::int64_t, std::int64_t,                    \
                                     const std::int64_t*, const std::int32_t*, const T*,          \
                                     std::int64_t, const T*, std::int64_t, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
