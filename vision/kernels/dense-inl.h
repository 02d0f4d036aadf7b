// What the passes of dense attention share, for one Highway target: copies of a head's rows, small
// matrix products, and rows of scores. Included once per target, as simd-inl.h is.

#if defined(LIPGRAD_VISION_KERNELS_DENSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_VISION_KERNELS_DENSE_INL_H
#undef LIPGRAD_VISION_KERNELS_DENSE_INL_H
#else
#define LIPGRAD_VISION_KERNELS_DENSE_INL_H
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <lipgrad/ops/kernels/dropout.h>
#include <lipgrad/ops/kernels/simd-inl.h>
#include <lipgrad/vision/kernels/dense_attention.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
std::int64_t whole_vectors(std::int64_t n) {
  const std::int64_t lanes = Simd<T>::lanes();
  return (n + lanes - 1) / lanes * lanes;
}

// ---- products ----

// C(m, columns) (+)= A B, where element (i, l) of A is a[i row_a + l col_a]; rows of B and C are
// whole vectors, ldb and ldc elements apart.
template <class T>
struct Product {
  std::int64_t k;
  const T* a;
  std::int64_t row_a, col_a;
  const T* b;
  std::int64_t ldb;
  T* c;
  std::int64_t ldc;
  bool add;
};

template <int R, int V, class T>
HWY_ATTR void product_tile(const Product<T>& p, const T* a, const T* b, T* c) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), row_a = p.row_a;
  using Vec = hn::Vec<decltype(d)>;
  Vec acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      acc[r][v] = p.add ? hn::LoadU(d, c + r * p.ldc + v * lanes) : hn::Zero(d);
  for (std::int64_t l = 0; l < p.k; ++l, a += p.col_a, b += p.ldb) {
    Vec vb[V];
    for (int v = 0; v < V; ++v) vb[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < R; ++r) {
      const Vec va = hn::Set(d, a[r * row_a]);
      for (int v = 0; v < V; ++v) acc[r][v] = hn::MulAdd(va, vb[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) hn::StoreU(acc[r][v], d, c + r * p.ldc + v * lanes);
}

template <int V, class T, std::size_t... R>
HWY_ATTR void product_rows(const Product<T>& p, std::int64_t rows, const T* a, const T* b, T* c,
                           std::index_sequence<R...>) {
  const bool found = ((rows == static_cast<std::int64_t>(R) + 1 &&
                       (product_tile<static_cast<int>(R) + 1, V>(p, a, b, c), true)) ||
                      ...);
  static_cast<void>(found);
}

template <int V, int kRows, class T>
HWY_ATTR void product_columns(const Product<T>& p, std::int64_t m, std::int64_t column) {
  // Tiles of nearly the same height: a last one of a row or two would wait for its own sums.
  const std::int64_t tiles = (m + kRows - 1) / kRows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t i = t * m / tiles, end = (t + 1) * m / tiles;
    product_rows<V>(p, end - i, p.a + i * p.row_a, p.b + column, p.c + i * p.ldc + column,
                    std::make_index_sequence<kRows>());
  }
}

// Tiles fill the registers: 32 of AVX-512, else 16.
template <class T>
HWY_ATTR void product(const Product<T>& p, std::int64_t m, std::int64_t columns) {
  const std::int64_t lanes = Simd<T>::lanes();
  std::int64_t left = columns / lanes, at = 0;
  while (left > 0) {
#if HWY_TARGET <= HWY_AVX3 && HWY_MAX_BYTES >= 64
    if (left == 4 || left >= 7) {
      product_columns<4, 6>(p, m, at);
      left -= 4;
      at += 4 * lanes;
      continue;
    }
    if (left == 3 || left >= 5) {
      product_columns<3, 8>(p, m, at);
      left -= 3;
      at += 3 * lanes;
      continue;
    }
#else
    if (left == 3) {
      product_columns<3, 4>(p, m, at);
      return;
    }
#endif
    if (left >= 2) {
      product_columns<2, 6>(p, m, at);
      left -= 2;
      at += 2 * lanes;
      continue;
    }
    product_columns<1, 8>(p, m, at);
    return;
  }
}

// ---- rows of q, k and v ----

// to(tokens, ld) = rows of `features` that are `row` elements apart, zeros behind them. ld: whole
// vectors.
template <class T>
HWY_ATTR void copy_rows(std::int64_t tokens, std::int64_t features, const T* from, std::int64_t row,
                        T* to, std::int64_t ld) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t t = 0; t < tokens; ++t, from += row, to += ld) {
    std::int64_t c = 0;
    for (; c + lanes <= features; c += lanes) store(load(from + c), to + c);
    if (c < features) store(load_part(from + c, features - c), to + c);
  }
}

template <class T>
HWY_INLINE T dot(std::int64_t n, const T* a, const T* b) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  V sum(0.0);
  std::int64_t c = 0;
  for (; c + lanes <= n; c += lanes) sum = fma(load(a + c), load(b + c), sum);
  if (c < n) sum = fma(load_part(a + c, n - c), load_part(b + c, n - c), sum);
  return sum_of_lanes(sum);
}

// copy_rows with each row divided by its length; inverse(tokens) of the lengths. A negative one
// says that the length is eps whatever the row is: its gradient has no part along the row.
template <class T>
HWY_ATTR void normal_rows(const DenseForm& form, const T* from, std::int64_t row, T* to,
                          std::int64_t ld, T* inverse) {
  const std::int64_t lanes = Simd<T>::lanes(), features = form.features;
  const T eps = static_cast<T>(form.eps);
  for (std::int64_t t = 0; t < form.tokens; ++t, from += row, to += ld) {
    const T square = dot(features, from, from);
    T factor;
    if (form.clamp) {
      const T length = std::sqrt(square);
      factor = length < eps ? T(1) / eps : T(1) / length;
      inverse[t] = length < eps ? -factor : factor;
    } else {
      factor = inverse[t] = T(1) / std::sqrt(square + eps);
    }
    const Simd<T> by{double(factor)};
    std::int64_t c = 0;
    for (; c + lanes <= features; c += lanes) store(load(from + c) * by, to + c);
    if (c < features) store(load_part(from + c, features - c) * by, to + c);
  }
}

// to(features, ld): the columns of from(tokens, features), rows `row` apart; zeros behind them.
template <class T>
HWY_ATTR void transpose_rows(std::int64_t tokens, std::int64_t features, const T* from,
                             std::int64_t row, T* to, std::int64_t ld) {
  std::int64_t t = 0;
#if HWY_TARGET != HWY_SCALAR
  // Square pieces of 16 bytes a row.
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  constexpr std::int64_t size = 16 / sizeof(T);
  for (; t + size <= tokens; t += size) {
    const T* at = from + t * row;
    std::int64_t c = 0;
    for (; c + size <= features; c += size) {
      T* out = to + c * ld + t;
      if constexpr (size == 4) {
        const auto r0 = hn::LoadU(d, at + c), r1 = hn::LoadU(d, at + row + c),
                   r2 = hn::LoadU(d, at + 2 * row + c), r3 = hn::LoadU(d, at + 3 * row + c);
        const hn::FixedTag<std::uint64_t, 2> pairs;
        const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1)),
                   low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3)),
                   high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1)),
                   high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, out);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, out + ld);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, out + 2 * ld);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, out + 3 * ld);
      } else {
        const auto r0 = hn::LoadU(d, at + c), r1 = hn::LoadU(d, at + row + c);
        hn::StoreU(hn::InterleaveLower(d, r0, r1), d, out);
        hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, out + ld);
      }
    }
    for (; c < features; ++c)
      for (std::int64_t i = 0; i < size; ++i) to[c * ld + t + i] = at[i * row + c];
  }
#endif
  for (; t < tokens; ++t)
    for (std::int64_t c = 0; c < features; ++c) to[c * ld + t] = from[t * row + c];
  for (std::int64_t c = 0; c < features; ++c)
    std::fill(to + c * ld + tokens, to + (c + 1) * ld, T(0));
}

// grad(tokens, features), rows `row` apart, of rows z from g = factor raw, the gradient of z / its
// length: (g - zhat <zhat, g>) / length, and g itself where inverse is null.
template <class T>
HWY_ATTR void finish_rows(std::int64_t tokens, std::int64_t features, T factor, const T* raw,
                          const T* unit, const T* inverse, std::int64_t ld, T* grad,
                          std::int64_t row) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  for (std::int64_t t = 0; t < tokens; ++t, raw += ld, grad += row) {
    T scale = factor, along = 0;
    const T* z = raw;
    if (inverse != nullptr) {
      z = unit + t * ld;
      if (inverse[t] > 0) along = dot(features, raw, z);
      scale = factor * std::abs(inverse[t]);
    }
    const V by{double(scale)}, less{double(-along)};
    for (std::int64_t c = 0; c < features; c += lanes) {
      const V g = load(raw + c), whole = along == T(0) ? g : fma(less, load(z + c), g);
      put(whole * by, grad + c, std::min(lanes, features - c));
    }
  }
}

// ---- rows of scores ----

template <class T>
using LabelOf = hwy::MakeSigned<T>;

// e^x for x <= 0, within 2 ulp; 0 below -86. Two thirds of the work of exp().
HWY_INLINE F32 exp_below(F32 x) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::int32_t> di;
  const F32 shift(12582912);  // 1.5 2^23: the sum's last bits are the nearest integer
  const F32 sum = fma(x, F32(1.44269504088896341), shift), n = sum - shift;
  F32 r = fma(n, F32(-0.693359375), x);
  r = fma(n, F32(2.12194440054690583e-4), r);
  const F32 q =
      polynomial(r, 0.5, 0.16666665673, 0.04166635871, 0.00833338965, 0.00139409269, 0.00019845901);
  const F32 y = F32(1) + fma(q, r * r, r);
  const auto bits = hn::Add(hn::BitCast(di, y.raw), hn::ShiftLeft<23>(hn::BitCast(di, sum.raw)));
  return select(x < F32(-86), F32(0), F32(hn::BitCast(d, bits)));
}
HWY_INLINE F64 exp_below(F64 x) { return exp(x); }

// The numbers of one (window, head), and what a row of scores is made from.
template <class T>
struct Head {
  std::int64_t b, h, tokens;
  T tau, nu;
  const T* bias;            // (T, T), or null
  const LabelOf<T>* label;  // (T, whole vectors), or null

  Head(const DenseForm& form, const DenseInput<T>& in, std::int64_t window, std::int64_t head,
       LabelOf<T>* labels)
      : b(window),
        h(head),
        tokens(form.tokens),
        tau(in.tau ? in.tau[head * form.tau_step] : static_cast<T>(form.tau)),
        nu(in.nu ? in.nu[head * form.nu_step] : static_cast<T>(form.nu)),
        bias(in.bias ? in.bias + head * form.tokens * form.tokens : nullptr),
        label(in.regions ? labels : nullptr) {
    if (!in.regions) return;
    const std::int32_t* from = in.regions + window % form.windows * tokens;
    std::copy(from, from + tokens, labels);
  }

  // Of the products of query i, at column j: the scores, -infinity behind the last token.
  HWY_INLINE Simd<T> score(Simd<T> product, std::int64_t i, std::int64_t j) const {
    using V = Simd<T>;
    const std::int64_t count = std::min(V::lanes(), tokens - j);
    const V lowest(-std::numeric_limits<double>::infinity());
    V s = bias ? fma(product, V{double(tau)}, get(bias + i * tokens + j, count))
               : product * V{double(tau)};
    if (label) {
      const hn::ScalableTag<LabelOf<T>> d;
      const auto same = hn::Eq(hn::LoadU(d, label + j), hn::Set(d, label[i]));
      s = select(Mask<T>{hn::RebindMask(hn::ScalableTag<T>(), same)}, s, lowest);
    }
    return count < V::lanes() ? select(first_lanes<T>(count), s, lowest) : s;
  }
};

// factor(count) = what dropout multiplies the weights of query i by; count: whole vectors.
template <class T>
void draw_keep(const DenseForm& form, const Head<T>& head, std::int64_t i, std::uint32_t* words,
               T* factor) {
  const std::int64_t row = form.keep_row();
  philox_words(form.seed, form.draw,
               static_cast<std::uint64_t>(((head.b * form.heads + head.h) * form.tokens + i) * row),
               row, words);
  const T scale = static_cast<T>(form.keep_scale);
  for (std::int64_t j = 0; j < form.tokens; ++j)
    factor[j] = dropout_keeps(words[j], form.threshold) ? scale : T(0);
}

// Rows of scores that a thread holds at a time: 64 KiB of them, some of a second-level cache.
template <class T>
std::int64_t query_rows(std::int64_t tokens) {
  const std::int64_t rows = (64 << 10) / static_cast<std::int64_t>(sizeof(T)) /
                            std::max<std::int64_t>(1, whole_vectors<T>(tokens)) / 12 * 12;
  return std::min(tokens, std::max<std::int64_t>(rows, 12));
}

// Heads that a block of parallel_for takes: some 2^21 products and more, so that most find what the
// head before has asked for.
inline std::int64_t heads_per_block(const DenseForm& form) {
  const double one = 2.0 * static_cast<double>(form.tokens) * static_cast<double>(form.tokens) *
                     static_cast<double>(form.features);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>((1 << 21) / std::max(one, 1.0)));
}
// At most so many parts of the windows have sums of the bias of their own.
inline constexpr std::int64_t bias_parts = 32;

// Asks for a row of a head: rows of one head lie too far apart for the processor to guess.
template <class T>
HWY_INLINE void prefetch_row(const T* row, std::int64_t features) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t c = 0; c < features; c += line) hwy::Prefetch(row + c);
  hwy::Prefetch(row + features - 1);
}

// Pieces of one aligned array of zeros.
template <class T>
class Arrays {
 public:
  explicit Arrays(std::int64_t elements)
      : memory_(hwy::AllocateAligned<T>(static_cast<std::size_t>(elements))) {
    std::fill(memory_.get(), memory_.get() + elements, T(0));
  }
  // n elements, rounded up to whole vectors.
  T* take(std::int64_t n) {
    T* at = memory_.get() + used_;
    used_ += rounded(n);
    return at;
  }
  static std::int64_t rounded(std::int64_t n) {
    constexpr std::int64_t unit = HWY_MAX_BYTES / sizeof(T);
    return (n + unit - 1) / unit * unit;
  }

 private:
  hwy::AlignedFreeUniquePtr<T[]> memory_;
  std::int64_t used_ = 0;
};

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
