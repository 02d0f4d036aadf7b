// What the passes of fused graph attention share, for one Highway target. Included once per target
// by gat_*cpu.cpp, after foreach_target.h and outside of any namespace.

#if defined(LIPGRAD_GRAPH_KERNELS_GAT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_GRAPH_KERNELS_GAT_INL_H
#undef LIPGRAD_GRAPH_KERNELS_GAT_INL_H
#else
#define LIPGRAD_GRAPH_KERNELS_GAT_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/feature_rows-inl.h>
#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// How the (count, H) numbers of a few edges lie: `stride` numbers an edge, a power of two below the
// vector size or a multiple of it, so that lane l of every vector belongs to head l % stride.
struct EdgeLayout {
  int64_t heads, stride;
  int64_t lanes;     // of a vector
  int64_t span;      // the period of vectors: max(stride, lanes)
  int64_t capacity;  // edges that are worked on at a time

  template <class T>
  static EdgeLayout of(int64_t heads) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    int64_t stride = 1;
    if (heads >= lanes) {
      stride = (heads + lanes - 1) / lanes * lanes;
    } else {
      while (stride < heads) stride *= 2;
    }
    return {heads, stride, lanes, std::max(stride, lanes),
            std::clamp<int64_t>(512 / stride, 16, 128)};
  }
  // Numbers of whole vectors: lanes is a power of two and divides the stride, or the other way
  // round.
  int64_t padded(int64_t count) const { return (count * stride + lanes - 1) & -lanes; }
};

// What stands behind the numbers of `count` edges, up to a whole vector: one store and no branch,
// as arrays have a vector to spare. Scores get the lowest number, the exponential of which is 0.
template <class T>
HWY_INLINE void lowest_padding(const EdgeLayout& layout, int64_t count, T* score) {
  const hn::ScalableTag<T> d;
  hn::StoreU(hn::Set(d, std::numeric_limits<T>::lowest()), d, score + count * layout.stride);
}
template <class T>
HWY_INLINE void zero_padding(const EdgeLayout& layout, int64_t count, T* numbers) {
  const hn::ScalableTag<T> d;
  hn::StoreU(hn::Zero(d), d, numbers + count * layout.stride);
}

// score[k, h] = own[h] + table[index[k], h]. table (nodes, table_row).
template <class T, int kHeads>
HWY_INLINE void gather_sum_fixed(int64_t count, const int32_t* index, const T* table,
                                 int64_t table_row, const T* own, T* score) {
  const hn::CappedTag<T, kHeads> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t h = 0; h < kHeads; h += lanes) {
    const auto mine = hn::LoadU(d, own + h);
    for (int64_t k = 0; k < count; ++k) {
      hn::StoreU(hn::Add(mine, hn::LoadU(d, table + index[k] * table_row + h)), d,
                 score + k * kHeads + h);
    }
  }
}

template <class T>
HWY_INLINE void gather_sum(const EdgeLayout& layout, int64_t count, const int32_t* index,
                           const T* table, int64_t table_row, const T* own, T* score) {
  if (layout.heads == layout.stride) {
    switch (layout.heads) {
      case 1:
        return gather_sum_fixed<T, 1>(count, index, table, table_row, own, score);
      case 2:
        return gather_sum_fixed<T, 2>(count, index, table, table_row, own, score);
      case 4:
        return gather_sum_fixed<T, 4>(count, index, table, table_row, own, score);
      case 8:
        return gather_sum_fixed<T, 8>(count, index, table, table_row, own, score);
      default:
        break;
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const T* theirs = table + index[k] * table_row;
    for (int64_t h = 0; h < layout.heads; ++h) score[k * layout.stride + h] = own[h] + theirs[h];
    for (int64_t h = layout.heads; h < layout.stride; ++h) score[k * layout.stride + h] = 0;
  }
}

// to[h] for the heads of `stride`, from sums by lane.
template <class T>
HWY_INLINE void fold_sum(const EdgeLayout& layout, const T* lanes, T* to) {
  const hn::ScalableTag<T> d;
  if (layout.stride == 1) {
    to[0] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, lanes)));
    return;
  }
  std::copy(lanes, lanes + layout.stride, to);
  for (int64_t l = layout.stride; l < layout.span; ++l) to[l % layout.stride] += lanes[l];
}

// The same for the maximum.
template <class T>
HWY_INLINE void fold_max(const EdgeLayout& layout, const T* lanes, T* to) {
  const hn::ScalableTag<T> d;
  if (layout.stride == 1) {
    to[0] = hn::GetLane(hn::MaxOfLanes(d, hn::LoadU(d, lanes)));
    return;
  }
  std::copy(lanes, lanes + layout.stride, to);
  for (int64_t l = layout.stride; l < layout.span; ++l) {
    to[l % layout.stride] = std::max(to[l % layout.stride], lanes[l]);
  }
}

// lanes[l] = from[l % stride], 0 for the lanes of no head.
template <class T>
HWY_INLINE void spread(const EdgeLayout& layout, const T* from, T* lanes) {
  const hn::ScalableTag<T> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  if (layout.stride == 1) {
    hn::StoreU(hn::Set(d, from[0]), d, lanes);
  } else if (layout.heads == layout.span) {
    for (int64_t l = 0; l < layout.span; l += step)
      hn::StoreU(hn::LoadU(d, from + l), d, lanes + l);
  } else {
    for (int64_t h = 0; h < layout.stride; ++h) lanes[h] = h < layout.heads ? from[h] : T(0);
    for (int64_t l = layout.stride; l < layout.span; ++l) lanes[l] = lanes[l - layout.stride];
  }
}

// factor[k, h] = scale where edge[k] is kept for head h, else 0.
template <class T>
void gather_keep(const EdgeLayout& layout, int64_t count, const int64_t* edge, const GatForm& form,
                 T* factor) {
  const T scale = static_cast<T>(form.keep_scale);
  const std::uint8_t* keep = form.keep;
  if (layout.heads == 8 && layout.stride == 8 && row_lanes<T>() == 8) {
    const RowTag<T> d;
    for (int64_t k = 0; k < count; ++k) {
      const auto mask = hn::LoadMaskBits(d, keep + edge[k]);
      hn::StoreU(hn::IfThenElseZero(mask, hn::Set(d, scale)), d, factor + k * 8);
    }
    return;
  }
  if (layout.heads == 1) {
    for (int64_t k = 0; k < count; ++k) factor[k] = keep[edge[k]] ? scale : T(0);
    return;
  }
  const int64_t bytes = (layout.heads + 7) / 8;
  for (int64_t k = 0; k < count; ++k) {
    const std::uint8_t* bits = keep + edge[k] * bytes;
    for (int64_t h = 0; h < layout.heads; ++h) {
      factor[k * layout.stride + h] = (bits[h / 8] >> (h % 8)) & 1 ? scale : T(0);
    }
  }
}

// Edges of rows of `width` numbers that make a block worth its while: some tens of microseconds.
HWY_INLINE int64_t gat_grain(int64_t width) { return std::clamp<int64_t>(32768 / width, 64, 1024); }

// Numbers and indices of the edges at hand, one for each thread's block.
template <class T>
class EdgeScratch {
 public:
  EdgeScratch(const EdgeLayout& layout, int arrays, int64_t row_numbers)
      : step_(layout.padded(layout.capacity) + layout.span),
        numbers_(static_cast<size_t>(arrays * step_ + 8 * layout.span + row_numbers)),
        arrays_(arrays),
        span_(layout.span),
        index(static_cast<size_t>(layout.capacity)),
        edge(static_cast<size_t>(layout.capacity)) {}

  T* array(int i) { return numbers_.data() + i * step_; }                    // (capacity, stride)
  T* lanes(int i) { return numbers_.data() + arrays_ * step_ + i * span_; }  // (span), 8 of them
  T* row() { return numbers_.data() + arrays_ * step_ + 8 * span_; }         // (row_numbers)

 private:
  int64_t step_;
  std::vector<T> numbers_;
  int64_t arrays_, span_;

 public:
  std::vector<int32_t> index;
  std::vector<int64_t> edge;
};

// Calls f(count, first) for the edges [begin, end) of one row in groups that fit into scratch.index
// (the node at the other end) and, if `edges`, scratch.edge. `loop` >= 0 adds that node as the last
// edge, as edge number loop_edge; where `skip` >= 0, edges to that node are left out. f is called
// at least once if there is any edge; `first` says whether this is the first call.
template <class T, class F>
HWY_INLINE bool for_edge_groups(EdgeScratch<T>& scratch, int64_t capacity, int64_t begin,
                                int64_t end, const int32_t* other, const int64_t* edge_of,
                                bool edges, int64_t skip, int64_t loop, int64_t loop_edge, F&& f) {
  int32_t* index = scratch.index.data();
  int64_t* edge = scratch.edge.data();
  bool first = true;
  int64_t p = begin;
  do {
    const int64_t stop = std::min(end, p + capacity - 1);
    int64_t count = 0;
    if (edges) {
      for (; p < stop; ++p) {
        index[count] = other[p];
        edge[count] = edge_of != nullptr ? edge_of[p] : p;
        count += other[p] != skip;
      }
    } else {
      for (; p < stop; ++p) {
        index[count] = other[p];
        count += other[p] != skip;
      }
    }
    if (p == end && loop >= 0) {
      index[count] = static_cast<int32_t>(loop);
      edge[count++] = loop_edge;
    }
    if (count > 0) {
      f(count, first);
      first = false;
    }
  } while (p < end);
  return !first;
}

// score = LeakyReLU(score); the padding behind the edges becomes the lowest number.
template <class T>
HWY_INLINE void leaky_scores(const EdgeLayout& layout, int64_t count, double slope, T* score) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), total = layout.padded(count);
  const auto factor = hn::Set(d, static_cast<T>(slope));
  for (int64_t i = 0; i < total; i += lanes) {
    const auto x = hn::LoadU(d, score + i);
    hn::StoreU(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, factor)), d, score + i);
  }
  lowest_padding(layout, count, score);
}

// The rows of grad_out, which all heads share when the output is their mean.
template <class T>
struct Cotangent {
  Cotangent(const GatForm& form, const T* grad_out)
      : rows{grad_out, form.mean_heads ? form.features : form.heads * form.features,
             form.mean_heads ? 0 : form.features},
        scale(form.mean_heads ? T(1) / static_cast<T>(form.heads) : T(1)) {}
  Rows<T> rows;
  T scale;
};

// Adds the partial sums of all blocks in order: total[c] = sum_b parts[b, c].
template <class T>
void add_parts(int64_t blocks, int64_t width, const std::vector<T>& parts, T* total) {
  std::fill(total, total + width, T(0));
  for (int64_t b = 0; b < blocks; ++b) {
    const T* part = parts.data() + b * width;
    for (int64_t c = 0; c < width; ++c) total[c] += part[c];
  }
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
