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
  T *s_src, *stats, *squares;
};
template <class T>
struct ForwardArgs {
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

template <class T>
class Forward {
 public:
  Forward(const ForwardArgs<T>& args, const EdgeLayout& layout, const std::vector<Tile>& tiles)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        tiles_(tiles),
        rows_{args.z, heads_ * features_, features_},
        group_(layout, 3, 2 * layout.stride),
        acc_(static_cast<std::size_t>(heads_ * features_)) {}

  void begin(std::int64_t) {}

  void row(std::int64_t i) {
    const std::int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(i, begin, end, true);
      return;
    }
    std::vector<T> top(static_cast<std::size_t>(layout_.stride)), sum(top.size());
    const bool any = max_of_piece(i, begin, end, true, top.data());
    if (any) sum_of_piece(i, begin, end, true, top.data(), sum.data(), acc_.data());
    write(i, any, top.data(), sum.data(), acc_.data());
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    T* score = leaky_scores();
    for (std::size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count == 0) continue;
      T* from = score + part.first * layout_.stride;
      row_max(layout_, part.count, from, top(r));
      row_shift(layout_, part.count, top(r), from);
    }
    exponentials(score);
    for (std::size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count == 0) continue;
      row_sum(layout_, part.count, score + part.first * layout_.stride, false, sum(r));
    }
    drop(score);
    for (std::size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count > 0) accumulate(part, score, false, acc_.data());
      write(part.row, part.count > 0, top(r), sum(r), acc_.data());
    }
    group_.clear();
  }

  // A long row, by pieces. top[h] = max of the scores of edges [begin, end) of row i, and of its
  // loop when `last`. False: there is no edge.
  bool max_of_piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, T* top) {
    bool any = false;
    each_group(i, begin, end, last, [&](const typename EdgeGroup<T>::Part& part) {
      row_max(layout_, part.count, leaky_scores(), this->top(0));
      for (std::int64_t h = 0; h < layout_.stride; ++h)
        top[h] = any ? std::max(top[h], this->top(0)[h]) : this->top(0)[h];
      any = true;
    });
    return any;
  }

  // sum[h] and acc[h, :] over the same edges, of exp(score - top) and of its products with z.
  void sum_of_piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, const T* top,
                    T* sum, T* acc) {
    bool add = false;
    each_group(i, begin, end, last, [&](const typename EdgeGroup<T>::Part& part) {
      T* score = leaky_scores();
      row_shift(layout_, part.count, top, score);
      exponentials(score);
      row_sum(layout_, part.count, score, add, sum);
      drop(score);
      accumulate(part, score, add, acc);
      add = true;
    });
  }

  // Writes stats and out of row i.
  void write(std::int64_t i, bool any, const T* top, const T* sum, const T* acc) {
    T* stats = a_.stats + i * 3 * heads_;
    const std::int64_t width = a_.form.mean_heads ? features_ : heads_ * features_;
    T* out = a_.out + i * width;
    if (!any) {
      for (std::int64_t h = 0; h < heads_; ++h) stats[heads_ + h] = stats[2 * heads_ + h] = 0;
      for (std::int64_t c = 0; c < width; ++c) out[c] = a_.bias != nullptr ? a_.bias[c] : T(0);
      return;
    }
    for (std::int64_t h = 0; h < heads_; ++h) stats[heads_ + h] = top[h];
    for (std::int64_t h = 0; h < heads_; ++h) stats[2 * heads_ + h] = 1 / sum[h];
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
  T* top(std::size_t part) { return group_.row(static_cast<std::int64_t>(part)); }
  T* sum(std::size_t part) { return top(part) + layout_.stride; }

  typename EdgeGroup<T>::Part append(std::int64_t i, std::int64_t begin, std::int64_t end,
                                     bool last) {
    const bool loops = a_.form.self_loops;
    const auto part = group_.append(i, begin, end, a_.graph.source, nullptr,
                                    a_.form.keep != nullptr, loops ? i : -1, loops && last ? i : -1,
                                    a_.graph.offsets[a_.graph.targets] + i);
    const std::int32_t* index = group_.index.data() + part.first;
    prefetch_rows(part.count, index, rows_, rows_.row * std::int64_t{sizeof(T)});
    gather_sum(layout_, part.count, index, a_.s_src, heads_, a_.stats + i * 3 * heads_,
               group_.array(0) + part.first * layout_.stride);
    if (a_.norm.target != nullptr) {
      gather_squares(layout_, part.count, index, a_.norm.source, a_.norm.target + i * heads_,
                     group_.array(2) + part.first * layout_.stride);
    }
    return part;
  }

  // f(part) for groups of the edges [begin, end) of row i; group_ is empty before and after.
  template <class F>
  void each_group(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, F&& f) {
    const std::int64_t most = layout_.capacity - 1;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const auto part = append(i, begin, stop, last && stop == end);
      if (part.count > 0) f(part);
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

  T* leaky_scores() {
    const hn::ScalableTag<T> d;
    T* score = group_.array(0);
    const std::int64_t total = layout_.padded(group_.count());
    const auto slope = hn::Set(d, static_cast<T>(a_.form.negative_slope));
    if (a_.norm.target != nullptr) {
      const T* square = group_.array(2);
      const Simd<T> eps(a_.norm.eps);
      for (std::int64_t at = 0; at < total; at += layout_.lanes)
        store(load(score + at) / (sqrt(load(square + at)) + eps), score + at);
    }
    for (std::int64_t at = 0; at < total; at += layout_.lanes) {
      const auto x = hn::LoadU(d, score + at);
      hn::StoreU(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, slope)), d, score + at);
    }
    return score;
  }
  void exponentials(T* score) {
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes)
      store(exp(load(score + at)), score + at);
  }
  void drop(T* weight) {
    if (a_.form.keep == nullptr) return;
    T* factor = group_.array(1);
    gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes)
      store(load(weight + at) * load(factor + at), weight + at);
  }
  void accumulate(const typename EdgeGroup<T>::Part& part, const T* weight, bool add, T* acc) {
    accumulate_rows(tiles_, part.count, group_.index.data() + part.first, rows_,
                    weight + part.first * layout_.stride, layout_.stride, features_, add, acc);
  }

  const ForwardArgs<T>& a_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  Rows<T> rows_;
  EdgeGroup<T> group_;
  std::vector<T> acc_;
};

template <class T>
void forward(const ForwardArgs<T>& a) {
  const std::int64_t width = a.form.heads * a.form.features;
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets, gat_grain(width));
  const auto hubs = blocks.run([&] { return Forward<T>(a, layout, tiles); });
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
            pass.sum_of_piece(row, from, to, last, top.data(), sum.data() + p * layout.stride,
                              acc.data() + p * width);
          }
        });
    for (std::int64_t p = 1; p < pieces; ++p) {
      for (std::int64_t h = 0; h < layout.stride; ++h) sum[h] += sum[p * layout.stride + h];
      for (std::int64_t c = 0; c < width; ++c) acc[c] += acc[p * width + c];
    }
    Forward<T>(a, layout, tiles).write(row, some, top.data(), sum.data(), acc.data());
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
  const ForwardArgs<T> args{graph, form, norm, z, s_src, bias, stats, out};
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
