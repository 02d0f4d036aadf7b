// Reductions over the rows of a CSR structure, `width` numbers an entry, for one Highway target.
// Included once per target by *_cpu.cpp, after foreach_target.h and outside of any namespace.

#if defined(LIPGRAD_GRAPH_KERNELS_EDGE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_GRAPH_KERNELS_EDGE_ROWS_INL_H
#undef LIPGRAD_GRAPH_KERNELS_EDGE_ROWS_INL_H
#else
#define LIPGRAD_GRAPH_KERNELS_EDGE_ROWS_INL_H
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// Integers, one for each lane of Simd<T>.
template <class T>
using LaneTag = hn::RebindToSigned<hn::ScalableTag<T>>;
template <class T>
using LaneIndex = hn::Vec<LaneTag<T>>;

// Where the index of integers is equal to i, as a mask of Simd<T>.
template <class T>
HWY_INLINE Mask<T> equals(LaneIndex<T> index, std::int64_t i) {
  const LaneTag<T> d;
  return {hn::RebindMask(hn::ScalableTag<T>(),
                         hn::Eq(index, hn::Set(d, static_cast<hn::TFromD<LaneTag<T>>>(i))))};
}

// All lanes of a vector.
template <class T>
struct WholeLanes {
  static constexpr bool whole = true;
  HWY_INLINE std::int64_t count() const { return Simd<T>::lanes(); }
  HWY_INLINE Simd<T> load(const T* p) const { return lipgrad::cpu::HWY_NAMESPACE::load(p); }
  HWY_INLINE void store(Simd<T> v, T* p) const { lipgrad::cpu::HWY_NAMESPACE::store(v, p); }
};
// The first of them, at the end of a row.
template <class T>
struct FirstLanes {
  static constexpr bool whole = false;
  std::int64_t n;
  HWY_INLINE std::int64_t count() const { return n; }
  HWY_INLINE Simd<T> load(const T* p) const { return load_part(p, n); }
  HWY_INLINE void store(Simd<T> v, T* p) const { store_part(v, p, n); }
};

template <class T, class Lanes>
HWY_INLINE LaneIndex<T> load_index(const std::int32_t* p, Lanes lanes) {
  const LaneTag<T> d;
  if constexpr (Lanes::whole && sizeof(T) == 4) {
    return hn::LoadU(d, p);
  } else {
    HWY_ALIGN hn::TFromD<LaneTag<T>> buffer[HWY_MAX_BYTES / sizeof(T)] = {};
    for (std::int64_t i = 0; i < lanes.count(); ++i) buffer[i] = p[i];
    return hn::Load(d, buffer);
  }
}
// p[i] = base + index[i].
template <class T, class Index, class Lanes>
HWY_INLINE void store_index(LaneIndex<T> index, std::int64_t base, Index* p, Lanes lanes) {
  HWY_ALIGN hn::TFromD<LaneTag<T>> buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(index, LaneTag<T>(), buffer);
  for (std::int64_t i = 0; i < lanes.count(); ++i) p[i] = static_cast<Index>(base + buffer[i]);
}

// Calls f(column, lanes, V) so that V vectors from each column on make up the row; V is a constant.
template <class T, class F>
HWY_INLINE void each_tile(std::int64_t width, F&& f) {
  const std::int64_t lanes = Simd<T>::lanes();
  std::int64_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes)
    f(c, WholeLanes<T>(), std::integral_constant<int, 4>());
  for (; c + lanes <= width; c += lanes) f(c, WholeLanes<T>(), std::integral_constant<int, 1>());
  if (c < width) f(c, FirstLanes<T>{width - c}, std::integral_constant<int, 1>());
}

// Entries [from, to) of a row that begins with entry `begin`.
struct Stretch {
  std::int64_t row, begin, from, to;
};

// Entries whose numbers are added (or compared) before they join what longer rows have come to.
constexpr std::int64_t kChunk = 256;

// Reduces every row. Op tells what to do:
//   Value               float or double
//   State               of one column of some entries
//   Acc                 the same in a vector
//   tile<V>(stretch, column, lanes, acc)   V vectors of acc from the entries (at least one)
//   finish(stretch, column, lanes, acc)    the result, of a vector of a whole row
//   states(stretch, acc, lanes, states)    a vector's States
//   merge(a, b)         the State of two stretches one after the other
//   finish_state(row, count, column, state)
//   empty(row)          the result of no entries
// Rows are cut in the same places on any number of threads.
template <class Op>
class RowReduction {
  using T = typename Op::Value;
  using State = typename Op::State;

 public:
  RowReduction(const Op& op, std::int64_t rows, const std::int64_t* offsets, std::int64_t width)
      : op_(op), rows_(rows), offsets_(offsets), width_(width) {}

  void run() const {
    if (width_ == 0) return;
    const RowBlocks blocks(rows_, offsets_, std::max<std::int64_t>(kChunk, 65536 / width_));
    for (const std::int64_t r : blocks.run([&] { return Pass{this, {}}; })) {
      const std::int64_t pieces = blocks.pieces(r), begin = offsets_[r], end = offsets_[r + 1];
      std::vector<State> states(static_cast<std::size_t>(pieces * width_));
      parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
        std::vector<State> more;
        for (std::int64_t p = first; p < last; ++p) {
          const std::int64_t from = begin + p * blocks.grain();
          piece({r, begin, from, std::min(end, from + blocks.grain())}, &states[p * width_], more);
        }
      });
      for (std::int64_t p = 1; p < pieces; ++p)
        for (std::int64_t c = 0; c < width_; ++c)
          states[c] = Op::merge(states[c], states[p * width_ + c]);
      for (std::int64_t c = 0; c < width_; ++c) op_.finish_state(r, end - begin, c, states[c]);
    }
  }

 private:
  struct Pass {
    const RowReduction* all;
    std::vector<State> states;
    void begin(std::int64_t) {}
    void finish() {}
    void row(std::int64_t r) { all->row(r, states); }
  };

  void row(std::int64_t r, std::vector<State>& states) const {
    const std::int64_t begin = offsets_[r], end = offsets_[r + 1];
    if (begin == end) return op_.empty(r);
    if (end - begin <= kChunk) {
      each_tile<T>(width_, [&](std::int64_t column, auto lanes, auto vectors) HWY_ATTR {
        constexpr int V = decltype(vectors)::value;
        typename Op::Acc acc[V];
        const Stretch whole{r, begin, begin, end};
        op_.template tile<V>(whole, column, lanes, acc);
        for (int v = 0; v < V; ++v) op_.finish(whole, column + v * Simd<T>::lanes(), lanes, acc[v]);
      });
      return;
    }
    std::vector<State> total(static_cast<std::size_t>(width_));
    piece({r, begin, begin, end}, total.data(), states);
    for (std::int64_t c = 0; c < width_; ++c) op_.finish_state(r, end - begin, c, total[c]);
  }

  // The States of a stretch; `more` is room for others.
  void piece(const Stretch& stretch, State* states, std::vector<State>& more) const {
    more.resize(static_cast<std::size_t>(width_));
    for (std::int64_t from = stretch.from; from < stretch.to; from += kChunk) {
      const Stretch part{stretch.row, stretch.begin, from, std::min(stretch.to, from + kChunk)};
      State* to = from == stretch.from ? states : more.data();
      each_tile<T>(width_, [&](std::int64_t column, auto lanes, auto vectors) HWY_ATTR {
        constexpr int V = decltype(vectors)::value;
        typename Op::Acc acc[V];
        op_.template tile<V>(part, column, lanes, acc);
        for (int v = 0; v < V; ++v)
          op_.states(part, acc[v], lanes, to + column + v * Simd<T>::lanes());
      });
      if (to == states) continue;
      for (std::int64_t c = 0; c < width_; ++c) states[c] = Op::merge(states[c], more[c]);
    }
  }

  const Op& op_;
  std::int64_t rows_;
  const std::int64_t* offsets_;
  std::int64_t width_;
};

template <class Op>
void reduce_rows(const Op& op, std::int64_t rows, const std::int64_t* offsets, std::int64_t width) {
  RowReduction<Op>(op, rows, offsets, width).run();
}

// Calls f(row, count, from, to) for all entries: the stretches of a row of `count` entries, on all
// threads. width: numbers an entry.
template <class F>
void each_stretch(std::int64_t rows, const std::int64_t* offsets, std::int64_t width, F&& f) {
  if (width == 0) return;
  struct Pass {
    const std::int64_t* offsets;
    F& f;
    void begin(std::int64_t) {}
    void finish() {}
    void row(std::int64_t r) { f(r, offsets[r + 1] - offsets[r], offsets[r], offsets[r + 1]); }
  };
  const RowBlocks blocks(rows, offsets, std::max<std::int64_t>(64, 65536 / width));
  for (const std::int64_t r : blocks.run([&] { return Pass{offsets, f}; })) {
    const std::int64_t begin = offsets[r], count = offsets[r + 1] - begin;
    parallel_for(count, blocks.grain(), [&](std::int64_t from, std::int64_t to) {
      f(r, count, begin + from, begin + to);
    });
  }
}

// A sum: what reductions by addition share. Terms are added in T within a chunk, in double beyond.
template <class T>
struct Addition {
  using Value = T;
  using State = double;
  using Acc = Simd<T>;

  template <class Lanes>
  void states(const Stretch&, Acc acc, Lanes lanes, State* states) const {
    HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
    store(acc, buffer);
    for (std::int64_t i = 0; i < lanes.count(); ++i) states[i] = static_cast<double>(buffer[i]);
  }
  static State merge(State a, State b) { return a + b; }
};

// The largest of x[index of entry, :], and which it was: the first of equal ones, or the first NaN
// if there is one. Entry e stands for row columns[e] of x, or for row e where that is null.
template <class T, class Index>
struct Maximum {
  using Value = T;
  struct State {
    T top;
    std::int64_t best;
  };
  struct Acc {
    Simd<T> top;
    LaneIndex<T> best;  // of the row, or from the stretch's start on
  };
  std::int64_t width;
  const std::int32_t* columns;
  const T* x;
  T* y;
  Index* argmax;  // may be null

  template <int V, class Lanes>
  HWY_INLINE void tile(const Stretch& s, std::int64_t column, Lanes lanes, Acc (&acc)[V]) const {
    const LaneTag<T> d;
    const auto row = [&](std::int64_t e) { return columns ? columns[e] : e; };
    const auto index = [&](std::int64_t e) HWY_ATTR {
      return hn::Set(d, static_cast<hn::TFromD<LaneTag<T>>>(columns ? columns[e] : e - s.from));
    };
    const T* from = x + row(s.from) * width + column;
    for (int v = 0; v < V; ++v) acc[v] = {lanes.load(from + v * Simd<T>::lanes()), index(s.from)};
    for (std::int64_t e = s.from + 1; e < s.to; ++e) {
      if (columns && e + 4 < s.to) __builtin_prefetch(x + columns[e + 4] * width + column);
      from = x + row(e) * width + column;
      const auto here = index(e);
      for (int v = 0; v < V; ++v) {
        const Simd<T> value = lanes.load(from + v * Simd<T>::lanes());
        // Larger, or the first NaN: not <=, and no NaN before.
        const auto better = hn::AndNot(is_nan(acc[v].top).raw, hn::Not((value <= acc[v].top).raw));
        acc[v].top = Simd<T>(hn::IfThenElse(better, value.raw, acc[v].top.raw));
        acc[v].best = hn::IfThenElse(hn::RebindMask(d, better), here, acc[v].best);
      }
    }
  }
  template <class Lanes>
  HWY_INLINE void finish(const Stretch& s, std::int64_t column, Lanes lanes, const Acc& acc) const {
    const std::int64_t at = s.row * width + column;
    lanes.store(acc.top, y + at);
    if (argmax) store_index<T>(acc.best, columns ? 0 : s.from, argmax + at, lanes);
  }
  template <class Lanes>
  void states(const Stretch& s, const Acc& acc, Lanes lanes, State* states) const {
    HWY_ALIGN T top[HWY_MAX_BYTES / sizeof(T)];
    std::int64_t best[HWY_MAX_BYTES / sizeof(T)];
    store(acc.top, top);
    store_index<T>(acc.best, columns ? 0 : s.from, best, lanes);
    for (std::int64_t i = 0; i < lanes.count(); ++i) states[i] = {top[i], best[i]};
  }
  static State merge(const State& a, const State& b) {
    return !std::isnan(a.top) && !(b.top <= a.top) ? b : a;
  }
  void finish_state(std::int64_t r, std::int64_t, std::int64_t column, const State& state) const {
    y[r * width + column] = state.top;
    if (argmax) argmax[r * width + column] = static_cast<Index>(state.best);
  }
  void empty(std::int64_t r) const {
    std::fill_n(y + r * width, width, T(0));
    if (argmax) std::fill_n(argmax + r * width, width, Index(-1));
  }
};

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
