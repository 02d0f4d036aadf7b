#include <lipgrad/graph/kernels/gatv2.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gatv2_sources_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gatv2-inl.h>

// With g, dalpha, c and w as in the pass over targets:
//
//   grad_right_j = sum_i keep_ij alpha_ij g_i + a sum_i w_ij LeakyReLU'(x_ij)

namespace lipgrad::cpu {
#ifndef LIPGRAD_GATV2_SOURCES_CPU_ARGS
#define LIPGRAD_GATV2_SOURCES_CPU_ARGS
namespace {
template <class T>
struct Gatv2SourceArgs {
  const GatGraph& graph;
  const GatForm& form;
  const Gatv2Inputs<T>& in;
  const T *stats, *centre, *grad_out;
  T* grad_right;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T, bool kEdges>
class Gatv2SourcePass {
 public:
  using Part = typename EdgeGroup<T>::Part;

  Gatv2SourcePass(const Gatv2SourceArgs<T>& args, const EdgeLayout& layout,
                  const std::vector<Tile>& tiles, const T* edge_weight)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        width_(heads_ * features_),
        layout_(layout),
        tiles_(tiles),
        g_(args.form, args.grad_out),
        left_{args.in.left, width_, features_},
        sums_(args.graph, args.form, args.in.edges, args.in.left, edge_weight),
        leaky_(args.form.negative_slope),
        group_(layout, 6, 0) {}

  void begin(std::int64_t) {}

  void row(std::int64_t j) {
    const std::int64_t begin = a_.graph.reverse_offsets[j], end = a_.graph.reverse_offsets[j + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(j, begin, end, true);
      return;
    }
    piece(j, begin, end, true, a_.grad_right + j * width_);
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    weights();
    for (const Part& part : group_.parts())
      add_part(part, false, a_.grad_right + part.row * width_);
    group_.clear();
  }

  // A long row, by pieces: to (H, D) over edges [begin, end) of source j, and its loop when `last`.
  void piece(std::int64_t j, std::int64_t begin, std::int64_t end, bool last, T* to) {
    const std::int64_t most = layout_.capacity - 1;
    bool add = false;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const Part part = append(j, begin, stop, last && stop == end);
      weights();
      add_part(part, add, to);
      add = true;
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

 private:
  Part append(std::int64_t j, std::int64_t begin, std::int64_t end, bool last) {
    const bool loops = a_.form.self_loops && j < a_.graph.targets;
    const Part part = group_.append(j, begin, end, a_.graph.reverse_target, a_.graph.reverse_edge,
                                    a_.form.keep != nullptr || kEdges, loops ? j : -1,
                                    loops && last ? j : -1, a_.graph.edges + j);
    if (part.count == 0) return part;
    const std::int32_t* index = group_.index.data() + part.first;
    prefetch_rows(part.count, index, left_, width_ * std::int64_t{sizeof(T)});
    prefetch_rows(part.count, index, g_.rows, g_.rows.row * std::int64_t{sizeof(T)});
    const std::int64_t at = part.first * layout_.stride;
    T *score = group_.array(0) + at, *top = group_.array(1) + at, *sum = group_.array(2) + at,
      *centre = group_.array(3) + at;
    const T* own = a_.in.right + j * width_;
    edge_scores(layout_, sums_, a_.form, a_.in.a, own, part.count, index,
                group_.edge.data() + part.first, score);
    row_dots(part.count, index, g_.rows, own, features_, heads_, features_, layout_.stride,
             group_.array(4) + at);
    for (std::int64_t k = 0; k < part.count; ++k) {
      const std::int64_t i = index[k];
      const T *stats = a_.stats + i * 2 * heads_, *given = a_.centre + i * heads_;
      for (std::int64_t h = 0; h < heads_; ++h) {
        const std::int64_t to = k * layout_.stride + h;
        if (a_.in.inverse != nullptr) score[to] *= a_.in.inverse[i * heads_ + h];
        top[to] = stats[h];
        sum[to] = stats[heads_ + h];
        centre[to] = given[h];
      }
    }
    return part;
  }

  // For all edges of the group: array 0 becomes keep alpha, array 1 alpha (dalpha - c).
  void weights() {
    T *score = group_.array(0), *top = group_.array(1), *inverse = group_.array(2),
      *centre = group_.array(3), *dots = group_.array(4), *factor = group_.array(5);
    if (a_.form.keep != nullptr)
      gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    const Simd<T> scale(g_.scale);
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes) {
      const Simd<T> alpha = exp(load(score + at) - load(top + at)) * load(inverse + at);
      const Simd<T> factors = a_.form.keep != nullptr ? scale * load(factor + at) : scale;
      store(alpha * (load(dots + at) * factors - load(centre + at)), top + at);
      store(alpha * factors, score + at);
    }
  }

  void add_part(const Part& part, bool add, T* to) {
    if (part.count == 0) {
      if (!add) std::fill(to, to + width_, T(0));
      return;
    }
    const std::int64_t at = part.first * layout_.stride;
    const std::int32_t* index = group_.index.data() + part.first;
    const std::int64_t* number = group_.edge.data() + part.first;
    accumulate_rows(tiles_, part.count, index, g_.rows, group_.array(0) + at, layout_.stride,
                    features_, add, to);
    T* weight = group_.array(1) + at;
    if (a_.in.inverse != nullptr)
      for (std::int64_t k = 0; k < part.count; ++k)
        for (std::int64_t h = 0; h < heads_; ++h)
          weight[k * layout_.stride + h] *= a_.in.inverse[std::int64_t{index[k]} * heads_ + h];
    const T* own = a_.in.right + part.row * width_;
    const RowTag<T> d;
    for (std::int64_t h = 0; h < heads_; ++h) {
      each_vector<T>(features_, [&](std::int64_t offset, auto io) HWY_ATTR {
        const std::int64_t c = h * features_ + offset;
        auto sum = hn::Zero(d);
        for (std::int64_t k = 0; k < part.count; ++k) {
          const auto w = hn::Set(d, weight[k * layout_.stride + h]);
          const auto x = sums_.edge(own, index[k], kEdges ? number[k] : 0).at(c, io);
          sum = hn::MulAdd(w, leaky_.derivative(x), sum);
        }
        io.store(hn::MulAdd(sum, io.load(a_.in.a + c), io.load(to + c)), to + c);
      });
    }
  }

  const Gatv2SourceArgs<T>& a_;
  std::int64_t heads_, features_, width_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  Cotangent<T> g_;
  Rows<T> left_;
  EdgeSums<T, kEdges> sums_;
  Leaky<T> leaky_;
  EdgeGroup<T> group_;
};

template <class T, bool kEdges>
void sources(const Gatv2SourceArgs<T>& a) {
  using Pass = Gatv2SourcePass<T, kEdges>;
  const std::int64_t width = a.form.heads * a.form.features;
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const std::vector<T> weight = transposed_weight(a.in.edges, width);
  const RowBlocks blocks(a.graph.sources, a.graph.reverse_offsets, gat_grain(width));
  const auto make = [&] { return Pass(a, layout, tiles, weight.data()); };
  const auto hubs = blocks.run(make);
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.reverse_offsets[row], end = a.graph.reverse_offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row);
    std::vector<T> sums(static_cast<std::size_t>(pieces * width));
    parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
      Pass pass = make();
      for (std::int64_t p = first; p < last; ++p) {
        const std::int64_t from = begin + p * blocks.grain();
        pass.piece(row, from, std::min(end, from + blocks.grain()), p + 1 == pieces,
                   sums.data() + p * width);
      }
    });
    add_parts(pieces, width, sums, a.grad_right + row * width);
  }
}

template <class T>
void sources_of(const Gatv2SourceArgs<T>& a) {
  return a.in.edges.features > 0 ? sources<T, true>(a) : sources<T, false>(a);
}
void gatv2_sources_float(const Gatv2SourceArgs<float>& a) { sources_of(a); }
void gatv2_sources_double(const Gatv2SourceArgs<double>& a) { sources_of(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(gatv2_sources_float);
HWY_EXPORT(gatv2_sources_double);

template <class T>
void gatv2_backward_sources(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                            const T* stats, const T* centre, const T* grad_out, T* grad_right) {
  const Gatv2SourceArgs<T> args{graph, form, in, stats, centre, grad_out, grad_right};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(gatv2_sources_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(gatv2_sources_double)(args);
  }
}

template void gatv2_backward_sources(const GatGraph&, const GatForm&, const Gatv2Inputs<float>&,
                                     const float*, const float*, const float*, float*);
template void gatv2_backward_sources(const GatGraph&, const GatForm&, const Gatv2Inputs<double>&,
                                     const double*, const double*, const double*, double*);

}  // namespace lipgrad::cpu
#endif
