// Rows of features, (H, D) numbers a node, taken together over the edges of a row: weighted sums
// and scalar products, for one Highway target. Included once per target by *_cpu.cpp, after
// foreach_target.h and outside of any namespace.

#if defined(LIPGRAD_GRAPH_KERNELS_FEATURE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_GRAPH_KERNELS_FEATURE_ROWS_INL_H
#undef LIPGRAD_GRAPH_KERNELS_FEATURE_ROWS_INL_H
#else
#define LIPGRAD_GRAPH_KERNELS_FEATURE_ROWS_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace hn = ::hwy::HWY_NAMESPACE;

using std::int32_t;
using std::int64_t;

// At most 256 bits: most heads have few features.
template <class T>
using RowTag = hn::CappedTag<T, 32 / sizeof(T)>;
template <class T>
using RowVec = hn::Vec<RowTag<T>>;

template <class T>
HWY_INLINE int64_t row_lanes() {
  return static_cast<int64_t>(hn::Lanes(RowTag<T>()));
}

// The first `count` < lanes numbers, then zeros; reads nothing behind them.
template <class T>
HWY_INLINE RowVec<T> load_first(const T* p, int64_t count) {
  const RowTag<T> d;
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return hn::Load(d, buffer);
#endif
}
template <class T>
HWY_INLINE void store_first(RowVec<T> v, T* p, int64_t count) {
  const RowTag<T> d;
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
#endif
}

// Calls f(offset, io) for all vectors of n numbers; io.load and io.store know whether one is whole.
template <class T>
struct WholeVector {
  HWY_INLINE RowVec<T> load(const T* p) const { return hn::LoadU(RowTag<T>(), p); }
  HWY_INLINE void store(RowVec<T> v, T* p) const { hn::StoreU(v, RowTag<T>(), p); }
};
template <class T>
struct PartVector {
  int64_t count;
  HWY_INLINE RowVec<T> load(const T* p) const { return load_first(p, count); }
  HWY_INLINE void store(RowVec<T> v, T* p) const { store_first(v, p, count); }
};
template <class T, class F>
HWY_INLINE void each_vector(int64_t n, F&& f) {
  const int64_t lanes = row_lanes<T>();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, WholeVector<T>());
  if (i < n) f(i, PartVector<T>{n - i});
}

// Where head h of node i begins: rows + i * row + h * head. head = 0: all heads share one row.
template <class T>
struct Rows {
  const T* at;
  int64_t row, head;
};

// Asks for rows[index[k], :] of `bytes` bytes ahead of their use.
template <class T>
HWY_INLINE void prefetch_rows(int64_t count, const int32_t* index, Rows<T> rows, int64_t bytes) {
  for (int64_t k = 0; k < count; ++k) {
    const char* row = reinterpret_cast<const char*>(rows.at + index[k] * rows.row);
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
  }
}

// The same for a few numbers a node: table (nodes, table_row), or null.
template <class T>
HWY_INLINE void prefetch_numbers(int64_t count, const int32_t* index, const T* table,
                                 int64_t table_row) {
  if (table == nullptr) return;
  for (int64_t k = 0; k < count; ++k) __builtin_prefetch(table + index[k] * table_row);
}

// Part of a row that fits into eight registers: `vectors` vectors in each of `heads` heads.
struct Tile {
  int64_t head, heads, offset, vectors;
  int64_t tail;  // numbers in the last vector if it is not full, else 0
};

template <class T>
std::vector<Tile> make_tiles(int64_t heads, int64_t features) {
  const int64_t lanes = row_lanes<T>(), full = features / lanes, tail = features % lanes;
  std::vector<Tile> tiles;
  const bool whole_heads = tail == 0 ? full == 1 || full == 2 || full == 4 || full == 8 : full == 0;
  if (whole_heads) {
    const int64_t vectors = std::max<int64_t>(full, 1);
    for (int64_t h = 0, group = 8 / vectors; h < heads; h += group) {
      while (group > heads - h) group /= 2;
      tiles.push_back({h, group, 0, vectors, tail});
    }
    return tiles;
  }
  for (int64_t h = 0; h < heads; ++h) {
    int64_t done = 0;
    for (int64_t vectors = 8; vectors > 0; vectors /= 2) {
      for (; full - done >= vectors; done += vectors)
        tiles.push_back({h, 1, done * lanes, vectors, 0});
    }
    if (tail > 0) tiles.push_back({h, 1, done * lanes, 1, tail});
  }
  return tiles;
}

// acc[h, :] (+)= sum_k weight[k, h] rows[index[k], h, :] over one tile. weight (count, stride), acc
// (H, D).
template <class T, int kVectors, int kHeads, bool kTail>
void accumulate_tile(const Tile& tile, int64_t count, const int32_t* index, Rows<T> rows,
                     const T* weight, int64_t stride, int64_t features, bool add, T* acc) {
  const RowTag<T> d;
  const int64_t lanes = row_lanes<T>();
  constexpr int kSets = kVectors * kHeads <= 2 ? 2 : 1;  // several sums hide the latency of one
  RowVec<T> sum[kSets][kHeads][kVectors];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
      for (int s = 0; s < kSets; ++s) sum[s][h][v] = hn::Zero(d);
    }
  }
  const T* base = rows.at + tile.head * rows.head + tile.offset;
  weight += tile.head;
  const auto load = [&](const T* p) {
    if constexpr (kTail) {
      return load_first(p, tile.tail);
    } else {
      return hn::LoadU(d, p);
    }
  };
  int64_t k = 0;
  for (; k + kSets <= count; k += kSets) {
#pragma GCC unroll 2
    for (int s = 0; s < kSets; ++s) {
      const T* row = base + index[k + s] * rows.row;
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        const auto w = hn::Set(d, weight[(k + s) * stride + h]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          sum[s][h][v] = hn::MulAdd(load(row + h * rows.head + v * lanes), w, sum[s][h][v]);
        }
      }
    }
  }
  if (kSets == 2 && k < count) {
    const T* row = base + index[k] * rows.row;
    for (int h = 0; h < kHeads; ++h) {
      const auto w = hn::Set(d, weight[k * stride + h]);
      for (int v = 0; v < kVectors; ++v) {
        sum[0][h][v] = hn::MulAdd(load(row + h * rows.head + v * lanes), w, sum[0][h][v]);
      }
    }
  }
  acc += tile.head * features + tile.offset;
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      T* p = acc + h * features + v * lanes;
      auto total = sum[0][h][v];
      if constexpr (kSets == 2) total = hn::Add(total, sum[1][h][v]);
      if (add) total = hn::Add(total, load(p));
      if constexpr (kTail) {
        store_first(total, p, tile.tail);
      } else {
        hn::StoreU(total, d, p);
      }
    }
  }
}

// acc (+)= sum_k weight[k, h] rows[index[k], h, :] for all heads.
template <class T>
void accumulate_rows(const std::vector<Tile>& tiles, int64_t count, const int32_t* index,
                     Rows<T> rows, const T* weight, int64_t stride, int64_t features, bool add,
                     T* acc) {
  for (const Tile& t : tiles) {
#define LIPGRAD_TILE(V, H, TAIL)                                                             \
  accumulate_tile<T, V, H, TAIL>(t, count, index, rows, weight, stride, features, add, acc); \
  break
    switch (t.vectors * 16 + t.heads + (t.tail > 0 ? 256 : 0)) {
      case 1 * 16 + 8:
        LIPGRAD_TILE(1, 8, false);
      case 1 * 16 + 4:
        LIPGRAD_TILE(1, 4, false);
      case 1 * 16 + 2:
        LIPGRAD_TILE(1, 2, false);
      case 1 * 16 + 1:
        LIPGRAD_TILE(1, 1, false);
      case 2 * 16 + 4:
        LIPGRAD_TILE(2, 4, false);
      case 2 * 16 + 2:
        LIPGRAD_TILE(2, 2, false);
      case 2 * 16 + 1:
        LIPGRAD_TILE(2, 1, false);
      case 4 * 16 + 2:
        LIPGRAD_TILE(4, 2, false);
      case 4 * 16 + 1:
        LIPGRAD_TILE(4, 1, false);
      case 8 * 16 + 1:
        LIPGRAD_TILE(8, 1, false);
      case 256 + 1 * 16 + 8:
        LIPGRAD_TILE(1, 8, true);
      case 256 + 1 * 16 + 4:
        LIPGRAD_TILE(1, 4, true);
      case 256 + 1 * 16 + 2:
        LIPGRAD_TILE(1, 2, true);
      case 256 + 1 * 16 + 1:
        LIPGRAD_TILE(1, 1, true);
      default:
        break;
    }
#undef LIPGRAD_TILE
  }
}

// <a, b> by lanes, not yet summed. kVectors whole vectors, or any number and a tail where it is 0.
template <class T, int kVectors>
HWY_INLINE RowVec<T> product_lanes(const T* a, const T* b, int64_t features) {
  const RowTag<T> d;
  const int64_t lanes = row_lanes<T>();
  if constexpr (kVectors > 0) {
    auto sum = hn::Mul(hn::LoadU(d, a), hn::LoadU(d, b));
#pragma GCC unroll 8
    for (int v = 1; v < kVectors; ++v) {
      sum = hn::MulAdd(hn::LoadU(d, a + v * lanes), hn::LoadU(d, b + v * lanes), sum);
    }
    return sum;
  } else {
    auto sum = hn::Zero(d);
    each_vector<T>(features, [&](int64_t i, auto io) HWY_ATTR {
      sum = hn::MulAdd(io.load(a + i), io.load(b + i), sum);
    });
    return sum;
  }
}

#if HWY_TARGET <= HWY_AVX2
// Lane i of the result is the sum of all lanes of v[i].
HWY_INLINE RowVec<float> sums_of_eight(const RowVec<float> (&v)[8]) {
  const RowTag<float> d;
  const hn::Repartition<std::uint64_t, RowTag<float>> d64;
  const auto pair = [&](RowVec<float> a, RowVec<float> b) {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto quad = [&](RowVec<float> a, RowVec<float> b) {
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                   hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  };
  const auto low = quad(pair(v[0], v[1]), pair(v[2], v[3]));
  const auto high = quad(pair(v[4], v[5]), pair(v[6], v[7]));
  return hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
}
#endif

#if HWY_TARGET <= HWY_AVX2
// dots[k, h] for kHeads heads, a power of two below eight or a multiple of eight (0), which stand
// side by side in dots: eight at a time. Writes up to seven numbers behind the last.
template <int kHeads, int kVectors>
void row_dots_of_eight(int64_t count, const int32_t* index, Rows<float> rows, const float* own,
                       int64_t own_head, int64_t heads, int64_t features, float* dots) {
  const RowTag<float> d;
  RowVec<float> v[8];
  if constexpr (kHeads == 0) {
    for (int64_t k = 0; k < count; ++k, dots += heads) {
      const float* row = rows.at + index[k] * rows.row;
      for (int64_t h = 0; h < heads; h += 8) {
#pragma GCC unroll 8
        for (int u = 0; u < 8; ++u) {
          v[u] = product_lanes<float, kVectors>(row + (h + u) * rows.head, own + (h + u) * own_head,
                                                features);
        }
        hn::StoreU(sums_of_eight(v), d, dots + h);
      }
    }
  } else {
    for (int64_t k = 0; k < count; k += 8 / kHeads, dots += 8) {
#pragma GCC unroll 8
      for (int e = 0; e < 8 / kHeads; ++e) {
        const float* row = rows.at + index[std::min(k + e, count - 1)] * rows.row;
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          v[e * kHeads + h] =
              product_lanes<float, kVectors>(row + h * rows.head, own + h * own_head, features);
        }
      }
      hn::StoreU(sums_of_eight(v), d, dots);
    }
  }
}
#endif

// dots[k, h] = <rows[index[k], h, :], own[h, :]>. dots (padded count, stride); its padding is
// undefined.
template <class T>
void row_dots(int64_t count, const int32_t* index, Rows<T> rows, const T* own, int64_t own_head,
              int64_t heads, int64_t features, int64_t stride, T* dots) {
#if HWY_TARGET <= HWY_AVX2
  if constexpr (std::is_same_v<T, float>) {
    if (heads == stride) {
#define LIPGRAD_DOTS(H, V) \
  row_dots_of_eight<H, V>(count, index, rows, own, own_head, heads, features, dots)
      if (heads == 1) return LIPGRAD_DOTS(1, 0);
      if (heads == 2) return LIPGRAD_DOTS(2, 0);
      if (heads == 4 && features == 32) return LIPGRAD_DOTS(4, 4);
      if (heads == 4 && features == 64) return LIPGRAD_DOTS(4, 8);
      if (heads == 4) return LIPGRAD_DOTS(4, 0);
      if (heads % 8 == 0 && features == 8) return LIPGRAD_DOTS(0, 1);
      if (heads % 8 == 0) return LIPGRAD_DOTS(0, 0);
#undef LIPGRAD_DOTS
    }
  }
#endif
  const RowTag<T> d;
  for (int64_t k = 0; k < count; ++k) {
    const T* row = rows.at + index[k] * rows.row;
    for (int64_t h = 0; h < heads; ++h) {
      dots[k * stride + h] = hn::GetLane(hn::SumOfLanes(
          d, product_lanes<T, 0>(row + h * rows.head, own + h * own_head, features)));
    }
  }
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
