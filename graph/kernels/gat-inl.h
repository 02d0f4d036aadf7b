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
#include <vector>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/feature_rows-inl.h>
#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// How the (count, H) numbers of a few edges lie: `stride` numbers an edge, a power of two below the
// vector size or a multiple of it.
struct EdgeLayout {
  int64_t heads, stride;
  int64_t lanes;     // of a vector
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
    return {heads, stride, lanes, std::clamp<int64_t>(512 / stride, 16, 128)};
  }
  // Numbers of whole vectors: lanes is a power of two.
  int64_t padded(int64_t count) const { return (count * stride + lanes - 1) & -lanes; }
};

// f(tag) with a tag of the vectors that hold the numbers of one edge, or as much of them as fits.
template <class T, class F>
HWY_INLINE void with_edge_tag(const EdgeLayout& layout, F&& f) {
  if (layout.stride >= layout.lanes) return f(hn::ScalableTag<T>());
  if (layout.stride == 1) return f(hn::CappedTag<T, 1>());
  if (layout.stride == 2) return f(hn::CappedTag<T, 2>());
  if (layout.stride == 4) return f(hn::CappedTag<T, 4>());
  f(hn::CappedTag<T, 8>());
}

// The numbers of the heads followed by zeros up to the stride: `from` itself or a copy in `buffer`.
template <class T>
HWY_INLINE const T* padded_heads(const EdgeLayout& layout, const T* from, T* buffer) {
  if (layout.heads == layout.stride) return from;
  std::copy(from, from + layout.heads, buffer);
  std::fill(buffer + layout.heads, buffer + layout.stride, T(0));
  return buffer;
}

// What follows works on the edges of one row, `count` >= 1 of them.

// top[h] = the largest of x[k, h].
template <class T>
HWY_INLINE void row_max(const EdgeLayout& layout, int64_t count, const T* x, T* top) {
  with_edge_tag<T>(layout, [&](auto d) HWY_ATTR {
    for (int64_t h = 0; h < layout.stride; h += static_cast<int64_t>(hn::Lanes(d))) {
      auto most = hn::LoadU(d, x + h);
      for (int64_t k = 1; k < count; ++k) {
        most = hn::Max(most, hn::LoadU(d, x + k * layout.stride + h));
      }
      hn::StoreU(most, d, top + h);
    }
  });
}

// x[k, h] -= top[h].
template <class T>
HWY_INLINE void row_shift(const EdgeLayout& layout, int64_t count, const T* top, T* x) {
  with_edge_tag<T>(layout, [&](auto d) HWY_ATTR {
    for (int64_t h = 0; h < layout.stride; h += static_cast<int64_t>(hn::Lanes(d))) {
      const auto shift = hn::LoadU(d, top + h);
      for (int64_t k = 0; k < count; ++k) {
        T* at = x + k * layout.stride + h;
        hn::StoreU(hn::Sub(hn::LoadU(d, at), shift), d, at);
      }
    }
  });
}

// sum[h] (+)= sum_k x[k, h].
template <class T>
HWY_INLINE void row_sum(const EdgeLayout& layout, int64_t count, const T* x, bool add, T* sum) {
  with_edge_tag<T>(layout, [&](auto d) HWY_ATTR {
    for (int64_t h = 0; h < layout.stride; h += static_cast<int64_t>(hn::Lanes(d))) {
      auto total = hn::LoadU(d, x + h);
      for (int64_t k = 1; k < count; ++k) {
        total = hn::Add(total, hn::LoadU(d, x + k * layout.stride + h));
      }
      if (add) total = hn::Add(total, hn::LoadU(d, sum + h));
      hn::StoreU(total, d, sum + h);
    }
  });
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

// square[k, h] = own[h] + table[index[k], h], without the table if it is null: what is under the
// root in the denominators of GatNorm.
template <class T>
HWY_INLINE void gather_squares(const EdgeLayout& layout, int64_t count, const int32_t* index,
                               const T* table, const T* own, T* square) {
  if (table != nullptr) {
    return gather_sum(layout, count, index, table, layout.heads, own, square);
  }
  for (int64_t k = 0; k < count; ++k, square += layout.stride) {
    for (int64_t h = 0; h < layout.heads; ++h) square[h] = own[h];
    for (int64_t h = layout.heads; h < layout.stride; ++h) square[h] = 0;
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

// The edges at hand: those of a few whole rows, or some of one long row, so that all their numbers
// are in the first-level cache and one step's latency hides behind another row's.
template <class T>
class EdgeGroup {
 public:
  // The edges at index[first] ... index[first + count - 1] are those of this row.
  struct Part {
    int64_t row, first, count;
  };

  // Room for `arrays` arrays of numbers of edges and `per_row` numbers of each row.
  EdgeGroup(const EdgeLayout& layout, int arrays, int64_t per_row)
      : index(static_cast<size_t>(layout.capacity)),
        edge(static_cast<size_t>(layout.capacity)),
        layout_(layout),
        step_(layout.padded(layout.capacity) + layout.lanes),
        per_row_(per_row),
        numbers_(static_cast<size_t>(arrays * step_)),
        rows_(static_cast<size_t>((layout.capacity + 1) * per_row)) {
    parts_.reserve(static_cast<size_t>(layout.capacity));
  }

  // (capacity, stride), and a vector to spare.
  T* array(int i) { return numbers_.data() + i * step_; }
  T* row(int64_t part) { return rows_.data() + part * per_row_; }
  const std::vector<Part>& parts() const { return parts_; }
  int64_t count() const { return count_; }
  // Whether there is room for a row of so many edges and a loop.
  bool has_room(int64_t edges) const {
    return count_ + edges < layout_.capacity &&
           static_cast<int64_t>(parts_.size()) < layout_.capacity;
  }
  void clear() {
    count_ = 0;
    parts_.clear();
  }

  // Appends the edges [begin, end) of a row: index gets the node at the other end, edge (if wanted)
  // edge_of[p], or p. Edges to the node `skip` are left out; `loop` >= 0 is one more edge, number
  // loop_edge.
  Part append(int64_t row, int64_t begin, int64_t end, const int32_t* other, const int64_t* edge_of,
              bool want_edges, int64_t skip, int64_t loop, int64_t loop_edge) {
    int64_t count = count_;
    int32_t* to = index.data();
    int64_t* number = edge.data();
    if (want_edges) {
      for (int64_t p = begin; p < end; ++p) {
        to[count] = other[p];
        number[count] = edge_of != nullptr ? edge_of[p] : p;
        count += other[p] != skip;
      }
    } else {
      for (int64_t p = begin; p < end; ++p) {
        to[count] = other[p];
        count += other[p] != skip;
      }
    }
    if (loop >= 0) {
      to[count] = static_cast<int32_t>(loop);
      number[count++] = loop_edge;
    }
    const Part part{row, count_, count - count_};
    parts_.push_back(part);
    count_ = count;
    return part;
  }

  std::vector<int32_t> index;
  std::vector<int64_t> edge;

 private:
  const EdgeLayout& layout_;
  int64_t step_, per_row_, count_ = 0;
  std::vector<T> numbers_, rows_;
  std::vector<Part> parts_;
};

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
