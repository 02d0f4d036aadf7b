#include <lipgrad/graph/kernels/gat.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gat_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gat-inl.h>
#include <lipgrad/graph/kernels/gat_forward-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_GAT_CPU_ARGS
#define LIPGRAD_GAT_CPU_ARGS
namespace {
template <class T>
struct ScoreArgs {
  std::int64_t sources, targets, heads, features;
  const T *z, *a_src, *a_dst;
  T *s_src, *stats, *squares;
};
template <class T>
struct GatArgs {
  const GatGraph& graph;
  const GatForm& form;
  const GatNorm<T>& norm;
  const T *z, *s_src, *bias;
  T *stats, *out;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void scores(const ScoreArgs<T>& a) {
  const std::int64_t row = a.heads * a.features, group = 32;
  const EdgeLayout layout = EdgeLayout::of<T>(a.heads);
  const std::int64_t grain = std::clamp<std::int64_t>(65536 / row, 1, 64) * group;
  parallel_for(a.sources, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> dots(static_cast<std::size_t>(layout.padded(group) + 8));
    std::int32_t index[group];
    for (std::int32_t k = 0; k < group; ++k) index[k] = k;
    for (std::int64_t i = begin; i < end; i += group) {
      const std::int64_t count = std::min(group, end - i);
      const Rows<T> rows{a.z + i * row, row, a.features};
      row_dots(count, index, rows, a.a_src, a.features, a.heads, a.features, layout.stride,
               dots.data());
      for (std::int64_t k = 0; k < count; ++k) {
        for (std::int64_t h = 0; h < a.heads; ++h) {
          a.s_src[(i + k) * a.heads + h] = dots[static_cast<std::size_t>(k * layout.stride + h)];
        }
      }
      if (a.squares != nullptr) {
        for (std::int64_t k = 0; k < count * a.heads; ++k) {
          const T* part = a.z + i * row + k * a.features;
          a.squares[i * a.heads + k] =
              hn::GetLane(hn::SumOfLanes(RowTag<T>(), product_lanes<T, 0>(part, part, a.features)));
        }
      }
      const std::int64_t targets = std::min(count, a.targets - i);
      if (targets <= 0) continue;
      row_dots(targets, index, rows, a.a_dst, a.features, a.heads, a.features, layout.stride,
               dots.data());
      for (std::int64_t k = 0; k < targets; ++k) {
        for (std::int64_t h = 0; h < a.heads; ++h) {
          a.stats[(i + k) * 3 * a.heads + h] =
              dots[static_cast<std::size_t>(k * layout.stride + h)];
        }
      }
    }
  });
}

// s_dst[i] + s_src[j], over the denominators, after LeakyReLU.
template <class T>
class GatScores {
 public:
  static constexpr int kArrays = 1;

  GatScores(const GatArgs<T>& args, const EdgeLayout& layout)
      : a_(args), layout_(layout), heads_(args.form.heads) {}

  bool want_edges() const { return false; }
  void prefetch(const EdgeGroup<T>& group, const typename EdgeGroup<T>::Part& part) const {
    const std::int32_t* index = group.index.data() + part.first;
    prefetch_numbers(part.count, index, a_.s_src, heads_);
    if (a_.norm.target != nullptr) prefetch_numbers(part.count, index, a_.norm.source, heads_);
  }
  void append(EdgeGroup<T>& group, const typename EdgeGroup<T>::Part& part, std::int64_t i) {
    const std::int32_t* index = group.index.data() + part.first;
    gather_sum(layout_, part.count, index, a_.s_src, heads_, a_.stats + i * 3 * heads_,
               group.array(0) + part.first * layout_.stride);
    if (a_.norm.target != nullptr) {
      gather_squares(layout_, part.count, index, a_.norm.source, a_.norm.target + i * heads_,
                     group.array(2) + part.first * layout_.stride);
    }
  }
  void finish(EdgeGroup<T>& group) {
    const hn::ScalableTag<T> d;
    T* score = group.array(0);
    const std::int64_t total = layout_.padded(group.count());
    const auto slope = hn::Set(d, static_cast<T>(a_.form.negative_slope));
    if (a_.norm.target != nullptr) {
      const T* square = group.array(2);
      const Simd<T> eps(a_.norm.eps);
      for (std::int64_t at = 0; at < total; at += layout_.lanes)
        store(load(score + at) / (sqrt(load(square + at)) + eps), score + at);
    }
    for (std::int64_t at = 0; at < total; at += layout_.lanes) {
      const auto x = hn::LoadU(d, score + at);
      hn::StoreU(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, slope)), d, score + at);
    }
  }

 private:
  const GatArgs<T>& a_;
  const EdgeLayout& layout_;
  std::int64_t heads_;
};

template <class T>
void forward(const GatArgs<T>& a) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  forward_pass<T>({a.graph, a.form, a.z, a.bias, a.stats, 3 * a.form.heads, a.form.heads, a.out},
                  layout, GatScores<T>(a, layout));
}

void scores_float(const ScoreArgs<float>& a) { scores(a); }
void scores_double(const ScoreArgs<double>& a) { scores(a); }
void forward_float(const GatArgs<float>& a) { forward(a); }
void forward_double(const GatArgs<double>& a) { forward(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(scores_float);
HWY_EXPORT(scores_double);
HWY_EXPORT(forward_float);
HWY_EXPORT(forward_double);

template <class T>
void gat_scores(std::int64_t sources, std::int64_t targets, std::int64_t heads,
                std::int64_t features, const T* z, const T* a_src, const T* a_dst, T* s_src,
                T* stats, T* squares) {
  const ScoreArgs<T> args{sources, targets, heads, features, z,
                          a_src,   a_dst,   s_src, stats,    squares};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(scores_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(scores_double)(args);
  }
}

template <class T>
void gat_forward(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm, const T* z,
                 const T* s_src, const T* bias, T* stats, T* out) {
  const GatArgs<T> args{graph, form, norm, z, s_src, bias, stats, out};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(forward_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(forward_double)(args);
  }
}

template void gat_scores(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const float*,
                         const float*, const float*, float*, float*, float*);
template void gat_scores(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const double*,
                         const double*, const double*, double*, double*, double*);
template void gat_forward(const GatGraph&, const GatForm&, const GatNorm<float>&, const float*,
                          const float*, const float*, float*, float*);
template void gat_forward(const GatGraph&, const GatForm&, const GatNorm<double>&, const double*,
                          const double*, const double*, double*, double*);

}  // namespace lipgrad::cpu
#endif
