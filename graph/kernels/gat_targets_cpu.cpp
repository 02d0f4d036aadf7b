#include <lipgrad/graph/kernels/gat.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gat_targets_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gat-inl.h>

// With g = grad_out of the head and dalpha_ij = keep_ij <g_i, z_j>, one pass over the edges of i
// gives
//
//   c_i = sum_j alpha_ij dalpha_ij
//   ds_dst[i] = sum_j alpha_ij (dalpha_ij - c_i) phi' = sum_j phi' alpha dalpha - c_i sum_j phi'
//   alpha
//
// where phi' is the slope of LeakyReLU at the edge's score.

namespace lipgrad::cpu {
#ifndef LIPGRAD_GAT_TARGETS_CPU_ARGS
#define LIPGRAD_GAT_TARGETS_CPU_ARGS
namespace {
template <class T>
struct BackwardArgs {
  const GatGraph& graph;
  const GatForm& form;
  const T *z, *s_src, *stats, *grad_out;
  T *grad_stats, *grad_bias;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
class TargetPass {
 public:
  TargetPass(const BackwardArgs<T>& args, const EdgeLayout& layout, T* bias_part)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        g_(args.form, args.grad_out),
        bias_part_(bias_part),
        scratch_(layout, 3, 0) {}

  void row(std::int64_t i) {
    T* sums = scratch_.lanes(3);
    piece(i, a_.graph.offsets[i], a_.graph.offsets[i + 1], true, sums);
    finish(i, sums);
  }

  // sums (3, span) by lanes: of alpha dalpha, phi' alpha dalpha and phi' alpha over edges [begin,
  // end).
  void piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, T* sums) {
    const T* stats = a_.stats + i * 3 * heads_;
    T *top = scratch_.lanes(0), *scale = scratch_.lanes(1);
    spread(layout_, stats + heads_, top);
    spread(layout_, stats + 2 * heads_, scale);
    std::fill(sums, sums + 3 * layout_.span, T(0));
    const Rows<T> rows{a_.z, heads_ * features_, features_};
    const bool loops = a_.form.self_loops;
    for_edge_groups(scratch_, layout_.capacity, begin, end, a_.graph.source, nullptr,
                    a_.form.keep != nullptr, loops ? i : -1, loops && last ? i : -1,
                    a_.graph.offsets[a_.graph.targets] + i,
                    [&](std::int64_t count, bool) { group(i, count, rows, top, scale, sums); });
  }

  void finish(std::int64_t i, T* sums) {
    T* sum = scratch_.lanes(2);
    T* to = a_.grad_stats + i * 2 * heads_;
    const auto fold = [&](int which) {
      fold_sum(layout_, sums + which * layout_.span, sum);
      return sum;
    };
    const T* c = fold(0);
    for (std::int64_t h = 0; h < heads_; ++h) to[h] = c[h];
    const T* weighted = fold(1);
    for (std::int64_t h = 0; h < heads_; ++h) to[heads_ + h] = weighted[h];
    const T* plain = fold(2);
    for (std::int64_t h = 0; h < heads_; ++h) to[heads_ + h] -= to[h] * plain[h];
    if (bias_part_ != nullptr) {
      const T* g = g_.rows.at + i * g_.rows.row;
      each_vector<T>(g_.rows.row, [&](std::int64_t c, auto io) HWY_ATTR {
        io.store(hn::Add(io.load(bias_part_ + c), io.load(g + c)), bias_part_ + c);
      });
    }
  }

 private:
  void group(std::int64_t i, std::int64_t count, Rows<T> rows, const T* top, const T* scale,
             T* sums) {
    T *score = scratch_.array(0), *dots = scratch_.array(1), *factor = scratch_.array(2);
    prefetch_rows(count, scratch_.index.data(), rows, heads_ * features_ * int64_t{sizeof(T)});
    gather_sum(layout_, count, scratch_.index.data(), a_.s_src, heads_, a_.stats + i * 3 * heads_,
               score);
    lowest_padding(layout_, count, score);
    row_dots(count, scratch_.index.data(), rows, g_.rows.at + i * g_.rows.row, g_.rows.head, heads_,
             features_, layout_.stride, dots);
    zero_padding(layout_, count, dots);
    if (a_.form.keep != nullptr) gather_keep(layout_, count, scratch_.edge.data(), a_.form, factor);

    const hn::ScalableTag<T> d;
    const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(d)),
                       total = layout_.padded(count);
    const Simd<T> slope(a_.form.negative_slope), one(1.0), zero(0.0), g_scale(g_.scale);
    for (std::int64_t part = 0; part < layout_.span; part += step) {
      const Simd<T> shift = load(top + part), inverse = load(scale + part);
      Simd<T> c = load(sums + part), weighted = load(sums + layout_.span + part),
              plain = load(sums + 2 * layout_.span + part);
      for (std::int64_t at = part; at < total; at += layout_.span) {
        const Simd<T> x = load(score + at);
        const Simd<T> slopes = select(x > zero, one, slope);
        const Simd<T> alpha = exp(x * slopes - shift) * inverse;
        Simd<T> grad = load(dots + at) * g_scale;
        if (a_.form.keep != nullptr) grad = grad * load(factor + at);
        const Simd<T> product = alpha * grad;
        c = c + product;
        weighted = fma(slopes, product, weighted);
        plain = fma(slopes, alpha, plain);
      }
      store(c, sums + part);
      store(weighted, sums + layout_.span + part);
      store(plain, sums + 2 * layout_.span + part);
    }
  }

  const BackwardArgs<T>& a_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  Cotangent<T> g_;
  T* bias_part_;
  EdgeScratch<T> scratch_;
};
template <class T>
void targets(const BackwardArgs<T>& a) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets,
                         gat_grain(a.form.heads * a.form.features));
  // One more part for the hubs.
  const std::int64_t parts = blocks.blocks() + 1, width = Cotangent<T>(a.form, a.grad_out).rows.row;
  std::vector<T> bias(a.grad_bias != nullptr ? static_cast<std::size_t>(parts * width) : 0);
  const auto bias_part = [&](std::int64_t b) {
    return bias.empty() ? nullptr : bias.data() + b * width;
  };
  const auto hubs = blocks.run([&](std::int64_t b) {
    return [pass = TargetPass<T>(a, layout, bias_part(b))](std::int64_t row) mutable {
      pass.row(row);
    };
  });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), size = 3 * layout.span;
    std::vector<T> sums(static_cast<std::size_t>(pieces * size));
    parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
      TargetPass<T> pass(a, layout, nullptr);
      for (std::int64_t p = first; p < last; ++p) {
        const std::int64_t from = begin + p * blocks.grain();
        pass.piece(row, from, std::min(end, from + blocks.grain()), p + 1 == pieces,
                   sums.data() + p * size);
      }
    });
    for (std::int64_t p = 1; p < pieces; ++p) {
      for (std::int64_t l = 0; l < size; ++l) sums[l] += sums[p * size + l];
    }
    TargetPass<T>(a, layout, bias_part(blocks.blocks())).finish(row, sums.data());
  }
  if (a.grad_bias != nullptr) add_parts(parts, width, bias, a.grad_bias);
}

void targets_float(const BackwardArgs<float>& a) { targets(a); }
void targets_double(const BackwardArgs<double>& a) { targets(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(targets_float);
HWY_EXPORT(targets_double);

template <class T>
void gat_backward_targets(const GatGraph& graph, const GatForm& form, const T* z, const T* s_src,
                          const T* stats, const T* grad_out, T* grad_stats, T* grad_bias) {
  const BackwardArgs<T> args{graph, form, z, s_src, stats, grad_out, grad_stats, grad_bias};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(targets_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(targets_double)(args);
  }
}

template void gat_backward_targets(const GatGraph& graph, const GatForm& form, const float* z,
                                   const float* s_src, const float* stats, const float* grad_out,
                                   float* grad_stats, float* grad_bias);
template void gat_backward_targets(const GatGraph& graph, const GatForm& form, const double* z,
                                   const double* s_src, const double* stats, const double* grad_out,
                                   double* grad_stats, double* grad_bias);

}  // namespace lipgrad::cpu
#endif
