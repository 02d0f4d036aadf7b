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
// where phi' is the slope of LeakyReLU at the edge's score. With a norm, D = r + eps is the edge's
// denominator and t the score after both: tbar = alpha (dalpha - c) phi' is the gradient at t
// before LeakyReLU, phi' / D takes the place of phi' above, dL/dr = -tbar t / D, and tbar t = alpha
// (dalpha
// - c) LeakyReLU(t).

namespace lipgrad::cpu {
#ifndef LIPGRAD_GAT_TARGETS_CPU_ARGS
#define LIPGRAD_GAT_TARGETS_CPU_ARGS
namespace {
template <class T>
struct BackwardArgs {
  const GatGraph& graph;
  const GatForm& form;
  const GatNorm<T>& norm;
  const T *z, *s_src, *stats, *grad_out;
  T *grad_stats, *grad_norm, *grad_bias;
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
  // Of an edge's numbers: alpha dalpha; w alpha dalpha and w alpha for the weights w of
  // ds_dst[i], dL/dr / r and dL/dr r, the last two with a norm only.
  static constexpr std::int64_t kSums = 7;

  // bias_parts (blocks, width), or null.
  TargetPass(const BackwardArgs<T>& args, const EdgeLayout& layout, T* bias_parts)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        g_(args.form, args.grad_out),
        rows_{args.z, heads_ * features_, features_},
        bias_parts_(bias_parts),
        group_(layout, 6, 0),
        sums_(static_cast<std::size_t>(kSums * layout.stride)),
        buffer_(static_cast<std::size_t>(layout.stride)) {}

  void begin(std::int64_t block) {
    if (bias_parts_ != nullptr) bias_part_ = bias_parts_ + block * g_.rows.row;
  }

  void row(std::int64_t i) {
    const std::int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(i, begin, end, true);
      return;
    }
    piece(i, begin, end, true, sums_.data());
    write(i, sums_.data());
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    slopes_and_exponentials();
    for (const auto& part : group_.parts()) {
      std::fill(sums_.begin(), sums_.end(), T(0));
      add_sums(part, sums_.data());
      write(part.row, sums_.data());
    }
    group_.clear();
  }

  // A long row, by pieces: sums (kSums, stride) over edges [begin, end) of row i, and its loop when
  // `last`.
  void piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, T* sums) {
    std::fill(sums, sums + kSums * layout_.stride, T(0));
    const std::int64_t most = layout_.capacity - 1;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const auto part = append(i, begin, stop, last && stop == end);
      slopes_and_exponentials();
      add_sums(part, sums);
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

  void write(std::int64_t i, const T* sums) {
    T* to = a_.grad_stats + i * 2 * heads_;
    const auto centred = [&](int pair, std::int64_t h) {
      const T* weighted = sums + (1 + 2 * pair) * layout_.stride;
      return weighted[h] - sums[h] * weighted[layout_.stride + h];
    };
    for (std::int64_t h = 0; h < heads_; ++h) {
      to[h] = sums[h];
      to[heads_ + h] = centred(0, h);
    }
    if (a_.norm.target != nullptr) {
      T* norm = a_.grad_norm + i * 2 * heads_;
      for (std::int64_t h = 0; h < heads_; ++h) {
        norm[h] = -centred(1, h);
        norm[heads_ + h] = -centred(2, h);
      }
    }
    if (bias_part_ != nullptr) {
      const T* g = g_.rows.at + i * g_.rows.row;
      each_vector<T>(g_.rows.row, [&](std::int64_t c, auto io) HWY_ATTR {
        io.store(hn::Add(io.load(bias_part_ + c), io.load(g + c)), bias_part_ + c);
      });
    }
  }

 private:
  // Appends the edges and asks for what gather() reads.
  typename EdgeGroup<T>::Part append(std::int64_t i, std::int64_t begin, std::int64_t end,
                                     bool last) {
    const bool loops = a_.form.self_loops;
    const auto part = group_.append(i, begin, end, a_.graph.source, nullptr,
                                    a_.form.keep != nullptr, loops ? i : -1, loops && last ? i : -1,
                                    a_.graph.offsets[a_.graph.targets] + i);
    const std::int32_t* index = group_.index.data() + part.first;
    prefetch_rows(part.count, index, rows_, rows_.row * std::int64_t{sizeof(T)});
    prefetch_numbers(part.count, index, a_.s_src, heads_);
    if (a_.norm.target != nullptr) prefetch_numbers(part.count, index, a_.norm.source, heads_);
    return part;
  }

  // The scores of the edges of a row, and their products <g_i, z_j>.
  void gather(const typename EdgeGroup<T>::Part& part) {
    const std::int32_t* index = group_.index.data() + part.first;
    const std::int64_t i = part.row, at = part.first * layout_.stride;
    gather_sum(layout_, part.count, index, a_.s_src, heads_, a_.stats + i * 3 * heads_,
               group_.array(0) + at);
    row_dots(part.count, index, rows_, g_.rows.at + i * g_.rows.row, g_.rows.head, heads_,
             features_, layout_.stride, group_.array(1) + at);
    if (a_.norm.target != nullptr) {
      gather_squares(layout_, part.count, index, a_.norm.source, a_.norm.target + i * heads_,
                     group_.array(4) + at);
    }
  }

  // For all edges of the group: score becomes exp(phi(score) - max), slope the weight of ds_dst,
  // and dots dalpha. With a norm, the last two arrays become the weights of dL/dr / r and dL/dr r.
  void slopes_and_exponentials() {
    for (const auto& part : group_.parts()) gather(part);
    T *score = group_.array(0), *dots = group_.array(1), *slope = group_.array(2),
      *factor = group_.array(3);
    const std::int64_t total = layout_.padded(group_.count());
    const Simd<T> negative(a_.form.negative_slope), one(1.0), zero(0.0), scale(g_.scale);
    if (a_.norm.target == nullptr) {
      for (std::int64_t at = 0; at < total; at += layout_.lanes) {
        const Simd<T> x = load(score + at), phi = select(x > zero, one, negative);
        store(phi, slope + at);
        store(x * phi, score + at);
      }
    } else {
      T *near = group_.array(4), *far = group_.array(5);
      const Simd<T> eps(a_.norm.eps);
      for (std::int64_t at = 0; at < total; at += layout_.lanes) {
        const Simd<T> r = sqrt(load(near + at)), inverse = one / (r + eps),
                      x = load(score + at) * inverse, phi = select(x > zero, one, negative),
                      t = x * phi;
        store(phi * inverse, slope + at);
        store(t, score + at);
        store(select(r > zero, t * inverse / r, zero), near + at);
        store(t * inverse * r, far + at);
      }
    }
    for (const auto& part : group_.parts()) {
      const T* top = padded_heads(layout_, a_.stats + (part.row * 3 + 1) * heads_, buffer_.data());
      row_shift(layout_, part.count, top, score + part.first * layout_.stride);
    }
    if (a_.form.keep != nullptr)
      gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    for (std::int64_t at = 0; at < total; at += layout_.lanes) {
      store(exp(load(score + at)), score + at);
      const Simd<T> product = load(dots + at) * scale;
      store(a_.form.keep != nullptr ? product * load(factor + at) : product, dots + at);
    }
  }

  void add_sums(const typename EdgeGroup<T>::Part& part, T* sums) {
    const T* scales = padded_heads(layout_, a_.stats + (part.row * 3 + 2) * heads_, buffer_.data());
    const std::int64_t first = part.first * layout_.stride;
    const T *p = group_.array(0) + first, *grad = group_.array(1) + first;
    add_pair<true>(part.count, scales, p, grad, group_.array(2) + first, sums,
                   sums + layout_.stride);
    if (a_.norm.target == nullptr) return;
    for (int pair = 1; pair <= 2; ++pair) {
      add_pair<false>(part.count, scales, p, grad, group_.array(3 + pair) + first, nullptr,
                      sums + (1 + 2 * pair) * layout_.stride);
    }
  }

  // With alpha = scales p: c += alpha grad, if kCentre; weighted (2, stride) += weight alpha grad
  // and weight alpha.
  template <bool kCentre>
  HWY_INLINE void add_pair(std::int64_t count, const T* scales, const T* p, const T* grad,
                           const T* weight, T* c, T* weighted) {
    const std::int64_t stride = layout_.stride;
    with_edge_tag<T>(layout_, [&](auto d) HWY_ATTR {
      for (std::int64_t h = 0; h < stride; h += static_cast<std::int64_t>(hn::Lanes(d))) {
        const auto scale = hn::LoadU(d, scales + h);
        auto centre = hn::Zero(d), with_grad = hn::LoadU(d, weighted + h),
             plain = hn::LoadU(d, weighted + stride + h);
        if constexpr (kCentre) centre = hn::LoadU(d, c + h);
        for (std::int64_t at = h; at < count * stride; at += stride) {
          const auto alpha = hn::Mul(hn::LoadU(d, p + at), scale), w = hn::LoadU(d, weight + at);
          const auto product = hn::Mul(alpha, hn::LoadU(d, grad + at));
          if constexpr (kCentre) centre = hn::Add(centre, product);
          with_grad = hn::MulAdd(w, product, with_grad);
          plain = hn::MulAdd(w, alpha, plain);
        }
        if constexpr (kCentre) hn::StoreU(centre, d, c + h);
        hn::StoreU(with_grad, d, weighted + h);
        hn::StoreU(plain, d, weighted + stride + h);
      }
    });
  }

  const BackwardArgs<T>& a_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  Cotangent<T> g_;
  Rows<T> rows_;
  T *bias_parts_, *bias_part_ = nullptr;
  EdgeGroup<T> group_;
  std::vector<T> sums_, buffer_;
};

template <class T>
void targets(const BackwardArgs<T>& a) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets,
                         gat_grain(a.form.heads * a.form.features));
  // One more part for the hubs.
  const std::int64_t parts = blocks.blocks() + 1, width = Cotangent<T>(a.form, a.grad_out).rows.row;
  std::vector<T> bias(a.grad_bias != nullptr ? static_cast<std::size_t>(parts * width) : 0);
  T* bias_parts = bias.empty() ? nullptr : bias.data();
  const auto hubs = blocks.run([&] { return TargetPass<T>(a, layout, bias_parts); });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), size = TargetPass<T>::kSums * layout.stride;
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
    TargetPass<T> pass(a, layout, bias_parts);
    pass.begin(blocks.blocks());
    pass.write(row, sums.data());
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
void gat_backward_targets(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                          const T* z, const T* s_src, const T* stats, const T* grad_out,
                          T* grad_stats, T* grad_norm, T* grad_bias) {
  const BackwardArgs<T> args{graph, form,     norm,       z,         s_src,
                             stats, grad_out, grad_stats, grad_norm, grad_bias};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(targets_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(targets_double)(args);
  }
}

template void gat_backward_targets(const GatGraph&, const GatForm&, const GatNorm<float>&,
                                   const float*, const float*, const float*, const float*, float*,
                                   float*, float*);
template void gat_backward_targets(const GatGraph&, const GatForm&, const GatNorm<double>&,
                                   const double*, const double*, const double*, const double*,
                                   double*, double*, double*);

}  // namespace lipgrad::cpu
#endif
