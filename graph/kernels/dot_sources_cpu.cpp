#include <lipgrad/graph/kernels/dot_attention.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/dot_sources_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/dot-inl.h>

// With g = grad_out of the head, ds_ij = alpha_ij (dalpha_ij - c_i) as in the pass over targets:
//
//   dk_j = sum_i m_i ds_ij q_i,  dv_j = sum_i keep_ij alpha_ij g_i

namespace lipgrad::cpu {
#ifndef LIPGRAD_DOT_SOURCES_CPU_ARGS
#define LIPGRAD_DOT_SOURCES_CPU_ARGS
namespace {
template <class T>
struct DotSources {
  const T* centre;
  T* grad_k;
  std::int64_t grad_k_row;
  T* grad_v;
  std::int64_t grad_v_row;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
class SourcePass {
 public:
  SourcePass(const DotBackward<T>& args, const DotSources<T>& to, const EdgeLayout& layout,
             const std::vector<Tile>& tiles)
      : a_(args),
        to_(to),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        tiles_(tiles),
        edge_features_(args.graph, args.form, args.in),
        q_{args.in.q, args.in.q_row, features_},
        g_(args.form, args.grad.out),
        group_(layout, 7, 0) {}

  void begin(std::int64_t) {}

  void row(std::int64_t j) {
    const std::int64_t begin = a_.graph.reverse_offsets[j], end = a_.graph.reverse_offsets[j + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(j, begin, end, true);
      return;
    }
    piece(j, begin, end, true, grad_k(j), grad_v(j));
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    weights();
    for (const auto& part : group_.parts())
      add_part(part, false, grad_k(part.row), grad_v(part.row));
    group_.clear();
  }

  // A long row, by pieces: dk and dv (H, D) over edges [begin, end) of source j, and its loop when
  // `last`.
  void piece(std::int64_t j, std::int64_t begin, std::int64_t end, bool last, T* dk, T* dv) {
    const std::int64_t most = layout_.capacity - 1;
    bool add = false;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const auto part = append(j, begin, stop, last && stop == end);
      weights();
      if (!add || part.count > 0) add_part(part, add, dk, dv);
      add = true;
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

  T* grad_k(std::int64_t j) const { return to_.grad_k + j * to_.grad_k_row; }
  T* grad_v(std::int64_t j) const { return to_.grad_v + j * to_.grad_v_row; }

 private:
  // Appends the edges with what their targets know of them, t and
  // dL/dalpha before dropout.
  typename EdgeGroup<T>::Part append(std::int64_t j, std::int64_t begin, std::int64_t end,
                                     bool last) {
    const bool loops = a_.form.self_loops && j < a_.graph.targets,
               edges = edge_features_.e != nullptr;
    const auto part = group_.append(j, begin, end, a_.graph.reverse_target, a_.graph.reverse_edge,
                                    a_.form.keep != nullptr || edges, loops ? j : -1,
                                    loops && last ? j : -1, a_.graph.offsets[a_.graph.targets] + j);
    const std::int32_t* index = group_.index.data() + part.first;
    prefetch_rows(part.count, index, q_, heads_ * features_ * std::int64_t{sizeof(T)});
    prefetch_rows(part.count, index, g_.rows, g_.rows.row * std::int64_t{sizeof(T)});
    const std::int64_t at = part.first * layout_.stride;
    T *t = group_.array(0) + at, *dots = group_.array(1) + at;
    gather_stats(part.count, index, at);
    row_dots(part.count, index, q_, a_.in.k + j * a_.in.k_row, features_, heads_, features_,
             layout_.stride, t);
    row_dots(part.count, index, g_.rows, a_.in.v + j * a_.in.v_row, features_, heads_, features_,
             layout_.stride, dots);
    if (g_.scale != T(1))
      for (std::int64_t l = 0; l < part.count * layout_.stride; ++l) dots[l] *= g_.scale;
    if (!edges) return part;
    const std::int64_t* edge = group_.edge.data() + part.first;
    edge_features_.add_dots(layout_, part.count, index, edge, a_.in.qe, t);
    if (a_.grad.edge_sum == nullptr) return part;
    edge_features_.add_dots(layout_, part.count, index, edge, a_.grad.edge_sum, dots);
    return part;
  }

  // For all edges of the group: the first array becomes m ds, the second one keep alpha.
  void weights() {
    T *score = group_.array(0), *dots = group_.array(1), *multiplier = group_.array(2),
      *top = group_.array(3), *inverse = group_.array(4), *centre = group_.array(5),
      *factor = group_.array(6);
    if (a_.form.keep != nullptr)
      gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    const Simd<T> scale(g_.scale), one(1.0);
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes) {
      const Simd<T> m = load(multiplier + at);
      const Simd<T> alpha = exp(load(score + at) * m - load(top + at)) * load(inverse + at);
      const Simd<T> factors = a_.form.keep != nullptr ? load(factor + at) : one;
      store(alpha * (load(dots + at) * factors - load(centre + at)) * m, score + at);
      store(alpha * factors * scale, dots + at);
    }
  }

  void add_part(const typename EdgeGroup<T>::Part& part, bool add, T* dk, T* dv) {
    if (part.count == 0) {
      std::fill(dk, dk + heads_ * features_, T(0));
      std::fill(dv, dv + heads_ * features_, T(0));
      return;
    }
    const std::int64_t at = part.first * layout_.stride;
    const std::int32_t* index = group_.index.data() + part.first;
    accumulate_rows(tiles_, part.count, index, q_, group_.array(0) + at, layout_.stride, features_,
                    add, dk);
    accumulate_rows(tiles_, part.count, index, g_.rows, group_.array(1) + at, layout_.stride,
                    features_, add, dv);
  }

  template <int kHeads>
  HWY_INLINE void gather_stats_of(std::int64_t count, const std::int32_t* index, std::int64_t at) {
    const hn::CappedTag<T, kHeads> d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t h = 0; h < kHeads; h += lanes) {
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t i = index[k], to = at + k * kHeads + h;
        const T* stats = a_.stats + i * 3 * kHeads + h;
        for (int s = 0; s < 3; ++s)
          hn::StoreU(hn::LoadU(d, stats + s * kHeads), d, group_.array(2 + s) + to);
        hn::StoreU(hn::LoadU(d, to_.centre + i * kHeads + h), d, group_.array(5) + to);
      }
    }
  }
  // m, top, inverse and centre of the targets, into arrays 2 to 5 from `at` on.
  void gather_stats(std::int64_t count, const std::int32_t* index, std::int64_t at) {
    if (layout_.heads == layout_.stride) {
      switch (heads_) {
        case 1:
          return gather_stats_of<1>(count, index, at);
        case 2:
          return gather_stats_of<2>(count, index, at);
        case 4:
          return gather_stats_of<4>(count, index, at);
        case 8:
          return gather_stats_of<8>(count, index, at);
        default:
          break;
      }
    }
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t i = index[k];
      for (std::int64_t h = 0; h < heads_; ++h) {
        const std::int64_t to = at + k * layout_.stride + h;
        for (int s = 0; s < 3; ++s) group_.array(2 + s)[to] = a_.stats[(i * 3 + s) * heads_ + h];
        group_.array(5)[to] = to_.centre[i * heads_ + h];
      }
    }
  }

  const DotBackward<T>& a_;
  const DotSources<T>& to_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  EdgeFeatures<T> edge_features_;
  Rows<T> q_;
  Cotangent<T> g_;
  EdgeGroup<T> group_;
};

template <class T>
void sources(const DotBackward<T>& a, const DotSources<T>& to) {
  const std::int64_t width = a.form.heads * a.form.features;
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const RowBlocks blocks(a.graph.sources, a.graph.reverse_offsets, gat_grain(width));
  const auto hubs = blocks.run([&] { return SourcePass<T>(a, to, layout, tiles); });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.reverse_offsets[row], end = a.graph.reverse_offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), size = 2 * width;
    std::vector<T> sums(static_cast<std::size_t>(pieces * size));
    parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
      SourcePass<T> pass(a, to, layout, tiles);
      for (std::int64_t p = first; p < last; ++p) {
        const std::int64_t from = begin + p * blocks.grain();
        T* sum = sums.data() + p * size;
        pass.piece(row, from, std::min(end, from + blocks.grain()), p + 1 == pieces, sum,
                   sum + width);
      }
    });
    for (std::int64_t p = 1; p < pieces; ++p)
      for (std::int64_t l = 0; l < size; ++l) sums[l] += sums[p * size + l];
    std::copy(sums.data(), sums.data() + width, to.grad_k + row * to.grad_k_row);
    std::copy(sums.data() + width, sums.data() + size, to.grad_v + row * to.grad_v_row);
  }
}

void sources_float(const DotBackward<float>& a, const DotSources<float>& to) { sources(a, to); }
void sources_double(const DotBackward<double>& a, const DotSources<double>& to) { sources(a, to); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(sources_float);
HWY_EXPORT(sources_double);

template <class T>
void dot_attention_backward_sources(const GatGraph& graph, const DotForm& form,
                                    const DotInput<T>& in, const T* stats, const T* centre,
                                    const DotCotangents<T>& grad, T* grad_k,
                                    std::int64_t grad_k_row, T* grad_v, std::int64_t grad_v_row) {
  const DotBackward<T> args{graph, form, in, stats, grad};
  const DotSources<T> to{centre, grad_k, grad_k_row, grad_v, grad_v_row};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(sources_float)(args, to);
  } else {
    HWY_DYNAMIC_DISPATCH(sources_double)(args, to);
  }
}

template void dot_attention_backward_sources(const GatGraph&, const DotForm&,
                                             const DotInput<float>&, const float*, const float*,
                                             const DotCotangents<float>&, float*, std::int64_t,
                                             float*, std::int64_t);
template void dot_attention_backward_sources(const GatGraph&, const DotForm&,
                                             const DotInput<double>&, const double*, const double*,
                                             const DotCotangents<double>&, double*, std::int64_t,
                                             double*, std::int64_t);

}  // namespace lipgrad::cpu
#endif
