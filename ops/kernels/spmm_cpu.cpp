#include <lipgrad/ops/kernels/spmm.h>

#include <algorithm>
#include <vector>

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
  std::int64_t heads, nnz;

  HWY_INLINE T value(std::int64_t e, std::int64_t head) const {
    return values ? values[(order ? order[e] : e) * heads + head] : T(1);
  }
};

// Asks for the first `count` numbers of the row of x that the entry four after this one needs,
// whichever row of the matrix that is of. (Further ahead is slower.)
template <class T>
HWY_INLINE void prefetch(const std::int32_t* columns, std::int64_t e, std::int64_t nnz, const T* x,
                         std::int64_t ldx, std::int64_t count) {
  if (e + 4 >= nnz) return;
  const T* row = x + columns[e + 4] * ldx;
  for (std::int64_t c = 0; c < count; c += 64 / sizeof(T)) __builtin_prefetch(row + c);
}

// A part of a row of the result: `vectors` whole vectors, or (0) the first `count` lanes of one.
struct Tile {
  std::int64_t at, head, vectors, count;
};
template <class T>
std::vector<Tile> tiles_of(std::int64_t width, std::int64_t features) {
  const std::int64_t lanes = Simd<T>::lanes();
  std::vector<Tile> tiles;
  for (std::int64_t at = 0; at < width;) {
    const std::int64_t head = at / features, stop = (head + 1) * features;
    for (std::int64_t vectors = 8; vectors > 0; vectors /= 2)
      for (; at + vectors * lanes <= stop; at += vectors * lanes)
        tiles.push_back({at, head, vectors, 0});
    if (at < stop) tiles.push_back({at, head, 0, stop - at});
    at = stop;
  }
  return tiles;
}

template <int V, class T>
HWY_INLINE void row_tile(const Sparse<T>& a, std::int64_t begin, std::int64_t end, const Tile& tile,
                         const T* x, std::int64_t ldx, T* y) {
  const std::int64_t lanes = Simd<T>::lanes();
  Simd<T> sum[V];
  for (int v = 0; v < V; ++v) sum[v] = Simd<T>(0.0);
  for (std::int64_t e = begin; e < end; ++e) {
    const T* from = x + a.columns[e] * ldx + tile.at;
    const Simd<T> value(hn::Set(hn::ScalableTag<T>(), a.value(e, tile.head)));
    for (int v = 0; v < V; ++v) sum[v] = fma(value, load(from + v * lanes), sum[v]);
  }
  for (int v = 0; v < V; ++v) store(sum[v], y + tile.at + v * lanes);
}

template <class T>
HWY_INLINE void row_part(const Sparse<T>& a, std::int64_t begin, std::int64_t end, const Tile& tile,
                         const T* x, std::int64_t ldx, T* y) {
  Simd<T> sum(0.0);
  for (std::int64_t e = begin; e < end; ++e) {
    const Simd<T> value(hn::Set(hn::ScalableTag<T>(), a.value(e, tile.head)));
    sum = fma(value, load_part(x + a.columns[e] * ldx + tile.at, tile.count), sum);
  }
  store_part(sum, y + tile.at, tile.count);
}

template <class T>
void spmm_rows(std::int64_t begin, std::int64_t end, std::int64_t features, Sparse<T> a, const T* x,
               std::int64_t ldx, T* y, std::int64_t ldy) {
  const std::vector<Tile> tiles = tiles_of<T>(a.heads * features, features);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t e0 = a.offsets[i], e1 = a.offsets[i + 1];
    T* to = y + i * ldy;
    // Two lines: the processor fetches those behind them by itself.
    for (std::int64_t e = e0; e < e1; ++e)
      prefetch(a.columns, e, a.nnz, x, ldx, 128 / std::int64_t{sizeof(T)});
    for (const Tile& tile : tiles) switch (tile.vectors) {
        case 8:
          row_tile<8>(a, e0, e1, tile, x, ldx, to);
          break;
        case 4:
          row_tile<4>(a, e0, e1, tile, x, ldx, to);
          break;
        case 2:
          row_tile<2>(a, e0, e1, tile, x, ldx, to);
          break;
        case 1:
          row_tile<1>(a, e0, e1, tile, x, ldx, to);
          break;
        default:
          row_part(a, e0, e1, tile, x, ldx, to);
      }
  }
}

// The products of u and v, by lanes: their sum is the scalar product.
template <class T>
HWY_INLINE Simd<T> products(std::int64_t n, const T* u, const T* v) {
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
  return s0 + s1;
}

// Lane i of the result is the sum of all lanes of v[i], for as many vectors as they have lanes; v
// is overwritten. The sums are made in the same way in every lane.
template <class T>
HWY_INLINE Simd<T> sums_of_lanes(Simd<T>* v) {
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  for (std::int64_t n = Simd<T>::lanes() / 2; n > 0; n /= 2)
    for (std::int64_t i = 0; i < n; ++i)
      v[i] = Simd<T>(hn::Add(hn::ConcatEven(d, v[2 * i + 1].raw, v[2 * i].raw),
                             hn::ConcatOdd(d, v[2 * i + 1].raw, v[2 * i].raw)));
#endif
  return v[0];
}

template <class T>
void dot_rows(std::int64_t begin, std::int64_t end, std::int64_t heads, std::int64_t features,
              std::int64_t nnz, const std::int64_t* offsets, const std::int32_t* columns,
              const T* gy, std::int64_t ldgy, const T* x, std::int64_t ldx, T* gvalues) {
  const std::int64_t lanes = Simd<T>::lanes();
  Simd<T> waiting[HWY_MAX_BYTES / sizeof(T)];
  std::int64_t count = 0;
  T* to = gvalues + offsets[begin] * heads;
  for (std::int64_t i = begin; i < end; ++i)
    for (std::int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
      prefetch(columns, e, nnz, x, ldx, heads * features);
      const T *left = gy + i * ldgy, *right = x + columns[e] * ldx;
      for (std::int64_t h = 0; h < heads; ++h) {
        waiting[count++] = products(features, left + h * features, right + h * features);
        if (count < lanes) continue;
        store(sums_of_lanes(waiting), to);
        to += lanes;
        count = 0;
      }
    }
  if (count == 0) return;
  for (std::int64_t k = count; k < lanes; ++k) waiting[k] = Simd<T>(0.0);
  store_part(sums_of_lanes(waiting), to, count);
}

}  // namespace

#define LIPGRAD_SPMM(suffix, T)                                                                    \
  void spmm_rows_##suffix(std::int64_t begin, std::int64_t end, std::int64_t nnz,                  \
                          std::int64_t heads, std::int64_t features, const std::int64_t* offsets,  \
                          const std::int32_t* columns, const std::int64_t* order, const T* values, \
                          const T* x, std::int64_t ldx, T* y, std::int64_t ldy) {                  \
    spmm_rows<T>(begin, end, features, {offsets, columns, order, values, heads, nnz}, x, ldx, y,   \
                 ldy);                                                                             \
  }                                                                                                \
  void dot_rows_##suffix(std::int64_t begin, std::int64_t end, std::int64_t nnz,                   \
                         std::int64_t heads, std::int64_t features, const std::int64_t* offsets,   \
                         const std::int32_t* columns, const T* gy, std::int64_t ldgy, const T* x,  \
                         std::int64_t ldx, T* gvalues) {                                           \
    dot_rows<T>(begin, end, heads, features, nnz, offsets, columns, gy, ldgy, x, ldx, gvalues);    \
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
void spmm(std::int64_t rows, std::int64_t, std::int64_t nnz, std::int64_t heads,
          std::int64_t features, const std::int64_t* offsets, const std::int32_t* columns,
          const std::int64_t* order, const T* values, const T* x, std::int64_t ldx, T* y,
          std::int64_t ldy) {
  const auto kernel = spmm_rows_of(T());
  for_row_blocks(rows, heads * features, offsets, [&](std::int64_t begin, std::int64_t end) {
    kernel(begin, end, nnz, heads, features, offsets, columns, order, values, x, ldx, y, ldy);
  });
}

template <class T>
void spmm_backward_values(std::int64_t rows, std::int64_t nnz, std::int64_t heads,
                          std::int64_t features, const std::int64_t* offsets,
                          const std::int32_t* columns, const T* gy, std::int64_t ldgy, const T* x,
                          std::int64_t ldx, T* gvalues) {
  const auto kernel = dot_rows_of(T());
  for_row_blocks(rows, heads * features, offsets, [&](std::int64_t begin, std::int64_t end) {
    kernel(begin, end, nnz, heads, features, offsets, columns, gy, ldgy, x, ldx, gvalues);
  });
}

#define INSTANTIATE(T)                                                                        \
  template void spmm(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,    \
                     const std::int64_t*, const std::int32_t*, const std::int64_t*, const T*, \
                     const T*, std::int64_t, T*, std::int64_t);                               \
  template void spmm_backward_values(std::int64_t, std::int64_t, std::int64_t, std::int64_t,  \
                                     const std::int64_t*, const std::int32_t*, const T*,      \
                                     std::int64_t, const T*, std::int64_t, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
