#include <lipgrad/graph/kernels/gat.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gat_sources_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gat-inl.h>

// With g = grad_out of the head, dalpha_ij = keep_ij <g_i, z_j>, c_i from the pass over targets and
// phi' the slope of LeakyReLU at the edge's score:
//
//   ds_src[j] = sum_i alpha_ij (dalpha_ij - c_i) phi'
//   dz_j = sum_i keep_ij alpha_ij g_i + ds_src[j] a_src + ds_dst[j] a_dst
//   da_src = sum_j ds_src[j] z_j,  da_dst = sum_j ds_dst[j] z_j
//
// With a norm, phi' / D takes the place of phi' (D the edge's denominator, t its score after
// LeakyReLU), dz_j gets (z_factor[j] - factor sum_i alpha_ij (dalpha_ij - c_i) t / (D r)) z_j, the
// sum in the form that is not centred only, and da gets a_factor a.

namespace lipgrad::cpu {
#ifndef LIPGRAD_GAT_SOURCES_CPU_ARGS
#define LIPGRAD_GAT_SOURCES_CPU_ARGS
namespace {
template <class T>
struct BackwardArgs {
  const GatGraph& graph;
  const GatForm& form;
  const GatNorm<T>& norm;
  const T *factor, *z_factor, *a_factor;
  const T *z, *s_src, *stats, *grad_stats, *grad_out, *a_src, *a_dst;
  T *grad_z, *grad_a_src, *grad_a_dst;
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
  // ds_src[j], and the sum that multiplies z_j.
  static constexpr std::int64_t kSums = 2;

  SourcePass(const BackwardArgs<T>& args, const EdgeLayout& layout, const std::vector<Tile>& tiles,
             T* a_parts)  // (blocks, 2, H, D)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        tiles_(tiles),
        g_(args.form, args.grad_out),
        a_parts_(a_parts),
        group_(layout, 7, 0),
        zeros_(static_cast<std::size_t>(layout.stride)),
        sum_(static_cast<std::size_t>(kSums * layout.stride)) {}

  void begin(std::int64_t block) { a_part_ = a_parts_ + block * 2 * heads_ * features_; }

  void row(std::int64_t j) {
    const std::int64_t begin = a_.graph.reverse_offsets[j], end = a_.graph.reverse_offsets[j + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(j, begin, end, true);
      return;
    }
    T* acc = a_.grad_z + j * heads_ * features_;
    piece(j, begin, end, true, sum_.data(), acc);
    write(j, sum_.data(), acc);
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    weights();
    for (const auto& part : group_.parts()) {
      T* acc = a_.grad_z + part.row * heads_ * features_;
      add_part(part, false, sum_.data(), acc);
      write(part.row, sum_.data(), acc);
    }
    group_.clear();
  }

  // A long row, by pieces: sum (kSums, stride) and acc (H, D) of keep alpha g over edges [begin,
  // end) of source j, and its loop when `last`.
  void piece(std::int64_t j, std::int64_t begin, std::int64_t end, bool last, T* sum, T* acc) {
    const std::int64_t most = layout_.capacity - 1;
    bool add = false;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const auto part = append(j, begin, stop, last && stop == end);
      weights();
      if (!add || part.count > 0) add_part(part, add, sum, acc);
      add = true;
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

  // The rest of grad_z[j], and j's part of the gradients of a_src and a_dst. acc may be grad_z[j].
  void write(std::int64_t j, const T* sum, const T* acc) {
    const T* ds_dst = j < a_.graph.targets ? a_.grad_stats + (2 * j + 1) * heads_ : nullptr;
    const std::int64_t width = heads_ * features_;
    const T* z = a_.z + j * width;
    T* grad_z = a_.grad_z + j * width;
    T *part_src = a_part_, *part_dst = a_part_ + width;
    const RowTag<T> d;
    for (std::int64_t h = 0, at = 0; h < heads_; ++h, at += features_) {
      const auto src = hn::Set(d, sum[h]), dst = hn::Set(d, ds_dst != nullptr ? ds_dst[h] : T(0));
      T own = 0;
      if (a_.norm.target != nullptr)
        own = a_.z_factor[j * heads_ + h] - a_.factor[h] * sum[layout_.stride + h];
      const auto through_norm = hn::Set(d, own);
      each_vector<T>(features_, [&](std::int64_t offset, auto io) HWY_ATTR {
        const std::int64_t c = at + offset;
        const auto x = io.load(z + c);
        const auto through_src = hn::MulAdd(src, io.load(a_.a_src + c), io.load(acc + c));
        const auto through_dst = hn::MulAdd(dst, io.load(a_.a_dst + c), through_src);
        io.store(hn::MulAdd(through_norm, x, through_dst), grad_z + c);
        io.store(hn::MulAdd(src, x, io.load(part_src + c)), part_src + c);
        io.store(hn::MulAdd(dst, x, io.load(part_dst + c)), part_dst + c);
      });
    }
  }

 private:
  // Appends the edges and asks for what gather() reads.
  typename EdgeGroup<T>::Part append(std::int64_t j, std::int64_t begin, std::int64_t end,
                                     bool last) {
    const bool loops = a_.form.self_loops && j < a_.graph.targets;
    const auto part = group_.append(j, begin, end, a_.graph.reverse_target, a_.graph.reverse_edge,
                                    a_.form.keep != nullptr, loops ? j : -1, loops && last ? j : -1,
                                    a_.graph.offsets[a_.graph.targets] + j);
    const std::int32_t* index = group_.index.data() + part.first;
    prefetch_rows(part.count, index, g_.rows, g_.rows.row * std::int64_t{sizeof(T)});
    prefetch_numbers(part.count, index, a_.stats, 3 * heads_);
    prefetch_numbers(part.count, index, a_.grad_stats, 2 * heads_);
    if (a_.norm.target != nullptr) prefetch_numbers(part.count, index, a_.norm.target, heads_);
    return part;
  }

  // What the targets of the edges of a row know of them, and the products <g_i, z_j>.
  void gather(const typename EdgeGroup<T>::Part& part) {
    const std::int32_t* index = group_.index.data() + part.first;
    const std::int64_t j = part.row, at = part.first * layout_.stride;
    gather_stats(j, part.count, index, group_.array(0) + at, group_.array(1) + at,
                 group_.array(2) + at, group_.array(3) + at);
    row_dots(part.count, index, g_.rows, a_.z + j * heads_ * features_, features_, heads_,
             features_, layout_.stride, group_.array(4) + at);
    if (a_.norm.target != nullptr) {
      const T* own = a_.norm.source != nullptr ? a_.norm.source + j * heads_ : zeros_.data();
      gather_squares(layout_, part.count, index, a_.norm.target, own, group_.array(6) + at);
    }
  }

  // For all edges of the group: the first array becomes keep alpha, the second one de, and with a
  // norm the last one alpha (dalpha - c) t / (D r).
  void weights() {
    for (const auto& part : group_.parts()) gather(part);
    T *score = group_.array(0), *top = group_.array(1), *inverse = group_.array(2),
      *centre = group_.array(3), *dots = group_.array(4), *factor = group_.array(5);
    if (a_.form.keep != nullptr)
      gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    T* square = a_.norm.target != nullptr ? group_.array(6) : nullptr;
    const Simd<T> negative(a_.form.negative_slope), one(1.0), zero(0.0), scale(g_.scale),
        eps(a_.norm.eps);
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes) {
      Simd<T> x = load(score + at), r = zero, shrink = one;
      if (square != nullptr) {
        r = sqrt(load(square + at));
        shrink = one / (r + eps);
        x = x * shrink;
      }
      const Simd<T> phi = select(x > zero, one, negative), t = x * phi;
      const Simd<T> alpha = exp(t - load(top + at)) * load(inverse + at);
      const Simd<T> factors = a_.form.keep != nullptr ? scale * load(factor + at) : scale;
      const Simd<T> grad = alpha * (load(dots + at) * factors - load(centre + at));
      store(grad * phi * shrink, top + at);
      store(alpha * factors, score + at);
      if (square != nullptr) store(select(r > zero, grad * t * shrink / r, zero), square + at);
    }
  }

  void add_part(const typename EdgeGroup<T>::Part& part, bool add, T* sum, T* acc) {
    if (part.count == 0) {
      std::fill(sum, sum + kSums * layout_.stride, T(0));
      std::fill(acc, acc + heads_ * features_, T(0));
      return;
    }
    const std::int64_t at = part.first * layout_.stride;
    row_sum(layout_, part.count, group_.array(1) + at, add, sum);
    if (a_.norm.source != nullptr)
      row_sum(layout_, part.count, group_.array(6) + at, add, sum + layout_.stride);
    accumulate_rows(tiles_, part.count, group_.index.data() + part.first, g_.rows,
                    group_.array(0) + at, layout_.stride, features_, add, acc);
  }

  template <int kHeads>
  HWY_INLINE void gather_stats_of(std::int64_t j, std::int64_t count, const std::int32_t* index,
                                  T* score, T* top, T* inverse, T* centre) {
    const hn::CappedTag<T, kHeads> d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t h = 0; h < kHeads; h += lanes) {
      const auto mine = hn::LoadU(d, a_.s_src + j * kHeads + h);
      for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t i = index[k], at = k * kHeads + h;
        const T* stats = a_.stats + i * 3 * kHeads + h;
        hn::StoreU(hn::Add(mine, hn::LoadU(d, stats)), d, score + at);
        hn::StoreU(hn::LoadU(d, stats + kHeads), d, top + at);
        hn::StoreU(hn::LoadU(d, stats + 2 * kHeads), d, inverse + at);
        hn::StoreU(hn::LoadU(d, a_.grad_stats + i * 2 * kHeads + h), d, centre + at);
      }
    }
  }
  void gather_stats(std::int64_t j, std::int64_t count, const std::int32_t* index, T* score, T* top,
                    T* inverse, T* centre) {
    if (layout_.heads == layout_.stride) {
      switch (heads_) {
        case 1:
          return gather_stats_of<1>(j, count, index, score, top, inverse, centre);
        case 2:
          return gather_stats_of<2>(j, count, index, score, top, inverse, centre);
        case 4:
          return gather_stats_of<4>(j, count, index, score, top, inverse, centre);
        case 8:
          return gather_stats_of<8>(j, count, index, score, top, inverse, centre);
        default:
          break;
      }
    }
    const T* mine = a_.s_src + j * heads_;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t i = index[k];
      const T *stats = a_.stats + i * 3 * heads_, *grad_stats = a_.grad_stats + i * 2 * heads_;
      for (std::int64_t h = 0; h < heads_; ++h) {
        const std::int64_t at = k * layout_.stride + h;
        score[at] = stats[h] + mine[h];
        top[at] = stats[heads_ + h];
        inverse[at] = stats[2 * heads_ + h];
        centre[at] = grad_stats[h];
      }
    }
  }

  const BackwardArgs<T>& a_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  Cotangent<T> g_;
  T *a_parts_, *a_part_ = nullptr;
  EdgeGroup<T> group_;
  std::vector<T> zeros_, sum_;
};

template <class T>
void sources(const BackwardArgs<T>& a) {
  const std::int64_t width = a.form.heads * a.form.features;
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const RowBlocks blocks(a.graph.sources, a.graph.reverse_offsets, gat_grain(width));
  const std::int64_t parts = blocks.blocks() + 1;  // one more for the hubs
  std::vector<T> a_parts(static_cast<std::size_t>(parts * 2 * width));
  const auto hubs = blocks.run([&] { return SourcePass<T>(a, layout, tiles, a_parts.data()); });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.reverse_offsets[row], end = a.graph.reverse_offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), own = SourcePass<T>::kSums * layout.stride,
                       size = own + width;
    std::vector<T> sums(static_cast<std::size_t>(pieces * size));
    parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
      SourcePass<T> pass(a, layout, tiles, nullptr);
      for (std::int64_t p = first; p < last; ++p) {
        const std::int64_t from = begin + p * blocks.grain();
        T* sum = sums.data() + p * size;
        pass.piece(row, from, std::min(end, from + blocks.grain()), p + 1 == pieces, sum,
                   sum + own);
      }
    });
    for (std::int64_t p = 1; p < pieces; ++p) {
      for (std::int64_t l = 0; l < size; ++l) sums[l] += sums[p * size + l];
    }
    SourcePass<T> pass(a, layout, tiles, a_parts.data());
    pass.begin(blocks.blocks());
    pass.write(row, sums.data(), sums.data() + own);
  }
  std::vector<T> total(static_cast<std::size_t>(2 * width));
  add_parts(parts, 2 * width, a_parts, total.data());
  for (std::int64_t c = 0; c < width; ++c) {
    const T factor = a.norm.target != nullptr ? a.a_factor[c / a.form.features] : T(0);
    a.grad_a_src[c] = total[c] + factor * a.a_src[c];
    a.grad_a_dst[c] = total[width + c] + factor * a.a_dst[c];
  }
}

void sources_float(const BackwardArgs<float>& a) { sources(a); }
void sources_double(const BackwardArgs<double>& a) { sources(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(sources_float);
HWY_EXPORT(sources_double);

template <class T>
void gat_backward_sources(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                          const T* factor, const T* z_factor, const T* a_factor, const T* z,
                          const T* s_src, const T* stats, const T* grad_stats, const T* grad_out,
                          const T* a_src, const T* a_dst, T* grad_z, T* grad_a_src, T* grad_a_dst) {
  const BackwardArgs<T> args{graph, form,   norm,       factor,     z_factor, a_factor,
                             z,     s_src,  stats,      grad_stats, grad_out, a_src,
                             a_dst, grad_z, grad_a_src, grad_a_dst};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(sources_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(sources_double)(args);
  }
}

template void gat_backward_sources(const GatGraph&, const GatForm&, const GatNorm<float>&,
                                   const float*, const float*, const float*, const float*,
                                   const float*, const float*, const float*, const float*,
                                   const float*, const float*, float*, float*, float*);
template void gat_backward_sources(const GatGraph&, const GatForm&, const GatNorm<double>&,
                                   const double*, const double*, const double*, const double*,
                                   const double*, const double*, const double*, const double*,
                                   const double*, const double*, double*, double*, double*);

}  // namespace lipgrad::cpu
#endif
