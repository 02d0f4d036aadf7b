#include <lipgrad/graph/kernels/gat.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gat_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gat-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_GAT_CPU_ARGS
#define LIPGRAD_GAT_CPU_ARGS
namespace {
template <class T>
struct ScoreArgs {
  std::int64_t sources, targets, heads, features;
  const T *z, *a_src, *a_dst;
  T *s_src, *stats;
};
template <class T>
struct ForwardArgs {
  const GatGraph& graph;
  const GatForm& form;
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
    std::vector<T> dots(static_cast<std::size_t>(layout.padded(group)));
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

template <class T>
class Forward {
 public:
  Forward(const ForwardArgs<T>& args, const EdgeLayout& layout, const std::vector<Tile>& tiles)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        tiles_(tiles),
        scratch_(layout, 2, heads_ * features_) {}

  void row(std::int64_t i) {
    const std::int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    T *top = scratch_.lanes(0), *sum = scratch_.lanes(1), *acc = scratch_.row();
    const bool any = max_of_piece(i, begin, end, true, top);
    const bool one_group = end - begin < layout_.capacity;
    if (any) {
      sum_of_piece(i, begin, end, true, one_group, top, sum, acc);
    }
    finish(i, any, top, sum, acc);
  }

  // top[h] = max of the scores of edges [begin, end) of row i, and of its loop when `last`.
  // False: there is no edge.
  bool max_of_piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, T* top) {
    T* lanes = scratch_.lanes(2);
    const bool any = groups(i, begin, end, last, [&](std::int64_t count, bool first) {
      score_group(i, count);
      const hn::ScalableTag<T> d;
      const T* score = scratch_.array(0);
      const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(d)),
                         total = layout_.padded(count);
      for (std::int64_t part = 0; part < layout_.span; part += step) {
        auto most = hn::LoadU(d, score + part);
        for (std::int64_t at = part + layout_.span; at < total; at += layout_.span) {
          most = hn::Max(most, hn::LoadU(d, score + at));
        }
        if (!first) most = hn::Max(most, hn::LoadU(d, lanes + part));
        hn::StoreU(most, d, lanes + part);
      }
    });
    if (!any) return false;
    fold_max(layout_, lanes, top);
    return true;
  }

  // sum[h] and acc[h, :] over edges [begin, end) of row i of exp(score - top) and its products with
  // z. scored: the scores of the whole piece are still in scratch.
  void sum_of_piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, bool scored,
                    const T* top, T* sum, T* acc) {
    T *top_lanes = scratch_.lanes(2), *lanes = scratch_.lanes(3);
    spread(layout_, top, top_lanes);
    const Rows<T> rows{a_.z, heads_ * features_, features_};
    groups(i, begin, end, last, [&](std::int64_t count, bool first) {
      if (!scored) score_group(i, count);
      const hn::ScalableTag<T> d;
      T* weight = scratch_.array(0);
      const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(d)),
                         total = layout_.padded(count);
      for (std::int64_t part = 0; part < layout_.span; part += step) {
        const Simd<T> shift(hn::LoadU(d, top_lanes + part));
        Simd<T> all(first ? hn::Zero(d) : hn::LoadU(d, lanes + part));
        for (std::int64_t at = part; at < total; at += layout_.span) {
          const Simd<T> p = exp(Simd<T>(hn::LoadU(d, weight + at)) - shift);
          all = all + p;
          store(p, weight + at);
        }
        store(all, lanes + part);
      }
      if (a_.form.keep != nullptr) {
        T* factor = scratch_.array(1);
        gather_keep(layout_, count, scratch_.edge.data(), a_.form, factor);
        for (std::int64_t at = 0; at < total; at += step) {
          hn::StoreU(hn::Mul(hn::LoadU(d, weight + at), hn::LoadU(d, factor + at)), d, weight + at);
        }
      }
      accumulate_rows(tiles_, count, scratch_.index.data(), rows, weight, layout_.stride, features_,
                      !first, acc);
    });
    fold_sum(layout_, lanes, sum);
  }

  // Writes stats and out of row i.
  void finish(std::int64_t i, bool any, const T* top, const T* sum, const T* acc) {
    T* stats = a_.stats + i * 3 * heads_;
    const std::int64_t width = a_.form.mean_heads ? features_ : heads_ * features_;
    T* out = a_.out + i * width;
    if (!any) {
      for (std::int64_t h = 0; h < heads_; ++h) stats[heads_ + h] = stats[2 * heads_ + h] = 0;
      for (std::int64_t c = 0; c < width; ++c) out[c] = a_.bias != nullptr ? a_.bias[c] : T(0);
      return;
    }
    for (std::int64_t h = 0; h < heads_; ++h) {
      stats[heads_ + h] = top[h];
      stats[2 * heads_ + h] = 1 / sum[h];
    }
    if (a_.form.mean_heads) {
      const T scale = T(1) / static_cast<T>(heads_);
      for (std::int64_t c = 0; c < features_; ++c) {
        T total = 0;
        for (std::int64_t h = 0; h < heads_; ++h)
          total += acc[h * features_ + c] * stats[2 * heads_ + h];
        out[c] = total * scale + (a_.bias != nullptr ? a_.bias[c] : T(0));
      }
      return;
    }
    for (std::int64_t h = 0; h < heads_; ++h) {
      const auto scale = hn::Set(RowTag<T>(), stats[2 * heads_ + h]);
      const T *from = acc + h * features_,
              *bias = a_.bias != nullptr ? a_.bias + h * features_ : nullptr;
      T* to = out + h * features_;
      each_vector<T>(features_, [&](std::int64_t c, auto io) HWY_ATTR {
        const auto x = io.load(from + c);
        io.store(bias != nullptr ? hn::MulAdd(x, scale, io.load(bias + c)) : hn::Mul(x, scale),
                 to + c);
      });
    }
  }

 private:
  template <class F>
  HWY_INLINE bool groups(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, F&& f) {
    const bool loops = a_.form.self_loops;
    return for_edge_groups(scratch_, layout_.capacity, begin, end, a_.graph.source, nullptr,
                           a_.form.keep != nullptr, loops ? i : -1, loops && last ? i : -1,
                           a_.graph.offsets[a_.graph.targets] + i, f);
  }
  HWY_INLINE void score_group(std::int64_t i, std::int64_t count) {
    prefetch_rows(count, scratch_.index.data(), Rows<T>{a_.z, heads_ * features_, features_},
                  heads_ * features_ * int64_t{sizeof(T)});
    gather_sum(layout_, count, scratch_.index.data(), a_.s_src, heads_, a_.stats + i * 3 * heads_,
               scratch_.array(0));
    leaky_scores(layout_, count, a_.form.negative_slope, scratch_.array(0));
  }

  const ForwardArgs<T>& a_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  EdgeScratch<T> scratch_;
};

template <class T>
void forward(const ForwardArgs<T>& a) {
  const std::int64_t width = a.form.heads * a.form.features;
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets, gat_grain(width));
  const auto hubs = blocks.run([&](std::int64_t) {
    return [pass = Forward<T>(a, layout, tiles)](std::int64_t row) mutable { pass.row(row); };
  });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), grain = blocks.grain();
    std::vector<T> top(static_cast<std::size_t>(pieces * layout.stride)), sum(top.size());
    std::vector<T> acc(static_cast<std::size_t>(pieces * width));
    std::vector<std::uint8_t> any(static_cast<std::size_t>(pieces));
    const auto each_piece = [&](auto&& f) {
      parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
        Forward<T> pass(a, layout, tiles);
        for (std::int64_t p = first; p < last; ++p) {
          f(pass, p, begin + p * grain, std::min(end, begin + (p + 1) * grain), p + 1 == pieces);
        }
      });
    };
    each_piece(
        [&](Forward<T>& pass, std::int64_t p, std::int64_t from, std::int64_t to, bool last) {
          any[p] = pass.max_of_piece(row, from, to, last, top.data() + p * layout.stride);
        });
    bool some = false;
    for (std::int64_t p = 0; p < pieces; ++p) {
      if (!any[p]) continue;
      for (std::int64_t h = 0; h < layout.stride; ++h) {
        const T value = top[p * layout.stride + h];
        top[h] = some ? std::max(top[h], value) : value;
      }
      some = true;
    }
    each_piece(
        [&](Forward<T>& pass, std::int64_t p, std::int64_t from, std::int64_t to, bool last) {
          if (any[p]) {
            pass.sum_of_piece(row, from, to, last, false, top.data(),
                              sum.data() + p * layout.stride, acc.data() + p * width);
          }
        });
    for (std::int64_t p = 1; p < pieces; ++p) {
      for (std::int64_t h = 0; h < layout.stride; ++h) sum[h] += sum[p * layout.stride + h];
      for (std::int64_t c = 0; c < width; ++c) acc[c] += acc[p * width + c];
    }
    Forward<T>(a, layout, tiles).finish(row, some, top.data(), sum.data(), acc.data());
  }
}

void scores_float(const ScoreArgs<float>& a) { scores(a); }
void scores_double(const ScoreArgs<double>& a) { scores(a); }
void forward_float(const ForwardArgs<float>& a) { forward(a); }
void forward_double(const ForwardArgs<double>& a) { forward(a); }

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
                T* stats) {
  const ScoreArgs<T> args{sources, targets, heads, features, z, a_src, a_dst, s_src, stats};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(scores_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(scores_double)(args);
  }
}

template <class T>
void gat_forward(const GatGraph& graph, const GatForm& form, const T* z, const T* s_src,
                 const T* bias, T* stats, T* out) {
  const ForwardArgs<T> args{graph, form, z, s_src, bias, stats, out};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(forward_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(forward_double)(args);
  }
}

template void gat_scores(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const float*,
                         const float*, const float*, float*, float*);
template void gat_scores(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const double*,
                         const double*, const double*, double*, double*);
template void gat_forward(const GatGraph&, const GatForm&, const float*, const float*, const float*,
                          float*, float*);
template void gat_forward(const GatGraph&, const GatForm&, const double*, const double*,
                          const double*, double*, double*);

}  // namespace lipgrad::cpu
#endif
