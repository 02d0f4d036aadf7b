#include <lipgrad/graph/kernels/dot_attention.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/dot_targets_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/dot-inl.h>

// With g = grad_out of the head, ge = grad_edge_sum and dalpha_ij = keep_ij (<g_i, v_j> + <ge_i,
// e_ij>):
//
//   c_i = sum_j alpha_ij dalpha_ij,  ds_ij = alpha_ij (dalpha_ij - c_i)
//   dq_i = m_i sum_j ds_ij k_j,  dqe_i = m_i sum_j ds_ij e_ij
//   dscale_i = factor sum_j ds_ij t_ij = factor (<q_i, sum_j ds_ij k_j> + <qe_i, sum_j ds_ij e_ij>)
//
// A row whose edges are all at hand gets c first. A longer one is read once all the same: sum_j ds
// k = sum_j alpha dalpha k - c sum_j alpha k.

namespace lipgrad::cpu {
#ifndef LIPGRAD_DOT_TARGETS_CPU_ARGS
#define LIPGRAD_DOT_TARGETS_CPU_ARGS
namespace {
template <class T>
struct DotTargets {
  T *centre, *grad_q;
  std::int64_t grad_q_row;
  T *grad_scale, *grad_qe;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// Of some edges of a target: c (stride); with the weights ds, or alpha dalpha, their sums with k
// (H, D) and e (H, Fe); with the weights alpha the same.
template <class T>
struct Sums {
  T *centre, *weighted, *edge_weighted, *plain, *edge_plain;

  static std::int64_t size(const DotForm& form, const EdgeLayout& layout) {
    return layout.stride + 2 * form.heads * (form.features + form.edge_features);
  }
  Sums(const DotForm& form, const EdgeLayout& layout, T* at) : centre(at) {
    weighted = at + layout.stride;
    edge_weighted = weighted + form.heads * form.features;
    plain = edge_weighted + form.heads * form.edge_features;
    edge_plain = plain + form.heads * form.features;
  }
};

template <class T>
class TargetPass : TargetEdges<T> {
  using Base = TargetEdges<T>;
  using Base::a_, Base::layout_, Base::group_, Base::edge_features_, Base::alpha, Base::gradient;
  using typename Base::Part;

 public:
  TargetPass(const DotBackward<T>& args, const DotTargets<T>& to, const EdgeLayout& layout,
             const std::vector<Tile>& tiles)
      : Base(args, layout),
        to_(to),
        heads_(args.form.heads),
        features_(args.form.features),
        tiles_(tiles),
        numbers_(static_cast<std::size_t>(Sums<T>::size(args.form, layout))),
        own_(args.form, layout, numbers_.data()) {}

  void begin(std::int64_t) {}

  void row(std::int64_t i) {
    const std::int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      Base::append(i, begin, end, true);
      return;
    }
    piece(i, begin, end, true, own_);
    write(i, true, own_);
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    Base::weights();
    for (const Part& part : group_.parts()) {
      if (part.count > 0) {
        sum_products(part, false, own_.centre);
        centre_gradients(part, own_.centre);
        accumulate(part, gradient(part), false, own_.weighted, own_.edge_weighted);
      } else {
        std::fill(numbers_.begin(), numbers_.end(), T(0));
      }
      write(part.row, false, own_);
    }
    group_.clear();
  }

  // A long row, by pieces: sums over edges [begin, end) of row i, and its loop when `last`.
  void piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, const Sums<T>& sums) {
    std::fill(sums.centre, sums.centre + Sums<T>::size(a_.form, layout_), T(0));
    const std::int64_t most = layout_.capacity - 1;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const Part part = Base::append(i, begin, stop, last && stop == end);
      Base::weights();
      if (part.count > 0) {
        sum_products(part, true, sums.centre);
        accumulate(part, gradient(part), true, sums.weighted, sums.edge_weighted);
        accumulate(part, alpha(part), true, sums.plain, sums.edge_plain);
      }
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

  // Gradients of row i; `split`: the sums are still apart.
  void write(std::int64_t i, bool split, const Sums<T>& sums) {
    const T* multiplier = a_.stats + i * 3 * heads_;
    const std::int64_t fe = edge_features_.features;
    T *grad_q = to_.grad_q + i * to_.grad_q_row,
      *grad_qe = fe > 0 ? to_.grad_qe + i * heads_ * fe : nullptr;
    const RowTag<T> d;
    for (std::int64_t h = 0; h < heads_; ++h) {
      const T c = sums.centre[h];
      auto product = hn::Zero(d);
      // grad = m (weighted - c plain); their product with `own` counts.
      const auto part = [&](std::int64_t n, T* weighted, const T* plain, const T* own, T* grad) {
        each_vector<T>(n, [&](std::int64_t at, auto io) HWY_ATTR {
          auto x = io.load(weighted + at);
          if (split) x = hn::NegMulAdd(hn::Set(d, c), io.load(plain + at), x);
          product = hn::MulAdd(x, io.load(own + at), product);
          io.store(hn::Mul(x, hn::Set(d, multiplier[h])), grad + at);
        });
      };
      part(features_, sums.weighted + h * features_, sums.plain + h * features_,
           a_.in.q + i * a_.in.q_row + h * features_, grad_q + h * features_);
      if (fe > 0)
        part(fe, sums.edge_weighted + h * fe, sums.edge_plain + h * fe,
             a_.in.qe + (i * heads_ + h) * fe, grad_qe + h * fe);
      to_.centre[i * heads_ + h] = c;
      if (to_.grad_scale != nullptr)
        to_.grad_scale[i * heads_ + h] =
            static_cast<T>(a_.form.factor) * hn::GetLane(hn::SumOfLanes(d, product));
    }
  }

 private:
  // gradient becomes alpha dalpha; c (+)= its sum.
  void sum_products(const Part& part, bool add, T* c) {
    T *p = alpha(part), *grad = gradient(part);
    const std::int64_t stride = layout_.stride;
    with_edge_tag<T>(layout_, [&](auto d) HWY_ATTR {
      for (std::int64_t at = 0; at < part.count * stride;
           at += static_cast<std::int64_t>(hn::Lanes(d)))
        hn::StoreU(hn::Mul(hn::LoadU(d, p + at), hn::LoadU(d, grad + at)), d, grad + at);
    });
    row_sum(layout_, part.count, grad, add, c);
  }
  // gradient = alpha dalpha - c alpha.
  void centre_gradients(const Part& part, const T* c) {
    T *p = alpha(part), *grad = gradient(part);
    with_edge_tag<T>(layout_, [&](auto d) HWY_ATTR {
      for (std::int64_t h = 0; h < layout_.stride; h += static_cast<std::int64_t>(hn::Lanes(d))) {
        const auto centre = hn::LoadU(d, c + h);
        for (std::int64_t k = 0; k < part.count; ++k) {
          const std::int64_t at = k * layout_.stride + h;
          hn::StoreU(hn::NegMulAdd(centre, hn::LoadU(d, p + at), hn::LoadU(d, grad + at)), d,
                     grad + at);
        }
      }
    });
  }
  void accumulate(const Part& part, const T* weight, bool add, T* sum, T* edge_sum) {
    accumulate_rows(tiles_, part.count, group_.index.data() + part.first, Base::k_, weight,
                    layout_.stride, features_, add, sum);
    if (edge_features_.features == 0) return;
    if (!add) std::fill(edge_sum, edge_sum + heads_ * edge_features_.features, T(0));
    if (edge_features_.e != nullptr)
      edge_features_.accumulate(layout_, part.count, group_.edge.data() + part.first, weight,
                                edge_sum);
  }

  const DotTargets<T>& to_;
  std::int64_t heads_, features_;
  const std::vector<Tile>& tiles_;
  std::vector<T> numbers_;
  Sums<T> own_;
};

template <class T>
void targets(const DotBackward<T>& a, const DotTargets<T>& to) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets,
                         gat_grain(a.form.heads * a.form.features));
  const auto hubs = blocks.run([&] { return TargetPass<T>(a, to, layout, tiles); });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), size = Sums<T>::size(a.form, layout);
    std::vector<T> sums(static_cast<std::size_t>(pieces * size));
    parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
      TargetPass<T> pass(a, to, layout, tiles);
      for (std::int64_t p = first; p < last; ++p) {
        const std::int64_t from = begin + p * blocks.grain();
        pass.piece(row, from, std::min(end, from + blocks.grain()), p + 1 == pieces,
                   Sums<T>(a.form, layout, sums.data() + p * size));
      }
    });
    for (std::int64_t p = 1; p < pieces; ++p)
      for (std::int64_t l = 0; l < size; ++l) sums[l] += sums[p * size + l];
    TargetPass<T>(a, to, layout, tiles).write(row, true, Sums<T>(a.form, layout, sums.data()));
  }
}

// Gradients of the edges' features: de_ij = sum_h m ds qe_i,h + keep alpha ge_i,h.
template <class T>
class EdgePass : TargetEdges<T> {
  using Base = TargetEdges<T>;
  using Base::a_, Base::layout_, Base::group_, Base::edge_features_, Base::alpha, Base::gradient;
  using typename Base::Part;

 public:
  EdgePass(const DotBackward<T>& args, const T* centre, T* grad_e, const EdgeLayout& layout)
      : Base(args, layout), centre_(centre), grad_e_(grad_e) {}

  void begin(std::int64_t) {}
  void finish() {}
  void row(std::int64_t i) { piece(i, a_.graph.offsets[i], a_.graph.offsets[i + 1]); }

  void piece(std::int64_t i, std::int64_t begin, std::int64_t end) {
    const std::int64_t fe = edge_features_.features;
    std::fill(grad_e_ + begin * fe, grad_e_ + end * fe, T(0));
    const std::int64_t most = layout_.capacity - 1;
    for (std::int64_t stop; begin < end; begin = stop) {
      stop = std::min(end, begin + most);
      const Part part = Base::append(i, begin, stop, false);
      if (part.count > 0) {
        Base::weights();
        edges(part);
      }
      group_.clear();
    }
  }

 private:
  void edges(const Part& part) {
    const std::int64_t heads = a_.form.heads, fe = edge_features_.features, i = part.row;
    const T *p = alpha(part), *grad = gradient(part), *factor = group_.array(2);
    const RowTag<T> d;
    for (std::int64_t k = 0; k < part.count; ++k) {
      T* to = grad_e_ + group_.edge[static_cast<std::size_t>(k)] * fe;
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t at = k * layout_.stride + h;
        const T weight = p[at] * (grad[at] - centre_[i * heads + h]) * a_.stats[i * 3 * heads + h],
                kept = a_.form.keep != nullptr ? p[at] * factor[at] : p[at];
        const T *qe = a_.in.qe + (i * heads + h) * fe,
                *ge =
                    a_.grad.edge_sum != nullptr ? a_.grad.edge_sum + (i * heads + h) * fe : nullptr;
        const auto of_score = hn::Set(d, weight), of_sum = hn::Set(d, kept);
        each_vector<T>(fe, [&](std::int64_t c, auto io) HWY_ATTR {
          auto sum = hn::MulAdd(of_score, io.load(qe + c), io.load(to + c));
          if (ge != nullptr) sum = hn::MulAdd(of_sum, io.load(ge + c), sum);
          io.store(sum, to + c);
        });
      }
    }
  }

  const T* centre_;
  T* grad_e_;
};

template <class T>
void edges(const DotBackward<T>& a, const T* centre, T* grad_e) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets,
                         gat_grain(a.form.heads * a.form.features));
  const auto hubs = blocks.run([&] { return EdgePass<T>(a, centre, grad_e, layout); });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    parallel_for(blocks.pieces(row), 1, [&](std::int64_t first, std::int64_t last) {
      EdgePass<T> pass(a, centre, grad_e, layout);
      pass.piece(row, begin + first * blocks.grain(), std::min(end, begin + last * blocks.grain()));
    });
  }
}

void targets_float(const DotBackward<float>& a, const DotTargets<float>& to) { targets(a, to); }
void targets_double(const DotBackward<double>& a, const DotTargets<double>& to) { targets(a, to); }
void edges_float(const DotBackward<float>& a, const float* centre, float* grad_e) {
  edges(a, centre, grad_e);
}
void edges_double(const DotBackward<double>& a, const double* centre, double* grad_e) {
  edges(a, centre, grad_e);
}

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(targets_float);
HWY_EXPORT(targets_double);
HWY_EXPORT(edges_float);
HWY_EXPORT(edges_double);

template <class T>
void dot_attention_backward_targets(const GatGraph& graph, const DotForm& form,
                                    const DotInput<T>& in, const T* stats,
                                    const DotCotangents<T>& grad, T* centre, T* grad_q,
                                    std::int64_t grad_q_row, T* grad_scale, T* grad_qe) {
  const DotBackward<T> args{graph, form, in, stats, grad};
  const DotTargets<T> to{centre, grad_q, grad_q_row, grad_scale, grad_qe};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(targets_float)(args, to);
  } else {
    HWY_DYNAMIC_DISPATCH(targets_double)(args, to);
  }
}

template <class T>
void dot_attention_backward_edges(const GatGraph& graph, const DotForm& form, const DotInput<T>& in,
                                  const T* stats, const T* centre, const DotCotangents<T>& grad,
                                  T* grad_e) {
  const DotBackward<T> args{graph, form, in, stats, grad};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(edges_float)(args, centre, grad_e);
  } else {
    HWY_DYNAMIC_DISPATCH(edges_double)(args, centre, grad_e);
  }
}

template void dot_attention_backward_targets(const GatGraph&, const DotForm&,
                                             const DotInput<float>&, const float*,
                                             const DotCotangents<float>&, float*, float*,
                                             std::int64_t, float*, float*);
template void dot_attention_backward_targets(const GatGraph&, const DotForm&,
                                             const DotInput<double>&, const double*,
                                             const DotCotangents<double>&, double*, double*,
                                             std::int64_t, double*, double*);
template void dot_attention_backward_edges(const GatGraph&, const DotForm&, const DotInput<float>&,
                                           const float*, const float*, const DotCotangents<float>&,
                                           float*);
template void dot_attention_backward_edges(const GatGraph&, const DotForm&, const DotInput<double>&,
                                           const double*, const double*,
                                           const DotCotangents<double>&, double*);

}  // namespace lipgrad::cpu
#endif
