// The forward pass of fused graph attention, whatever its scores: softmax over the edges of a row,
// and the weighted sum of the sources' values. Included once per target by *_cpu.cpp, after
// foreach_target.h and outside of any namespace.

#if defined(LIPGRAD_GRAPH_KERNELS_GAT_FORWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_GRAPH_KERNELS_GAT_FORWARD_INL_H
#undef LIPGRAD_GRAPH_KERNELS_GAT_FORWARD_INL_H
#else
#define LIPGRAD_GRAPH_KERNELS_GAT_FORWARD_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/gat-inl.h>
#include <lipgrad/graph/kernels/row_blocks.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

template <class T>
struct ForwardArgs {
  const GatGraph& graph;
  const GatForm& form;
  const T *values, *bias;  // values (sources, H, D)
  T* stats;                // (targets, `stats_row`): the maximum and 1 / sum of each head from
  int64_t stats_row, stats_first;  // `stats_first` on
  T* out;
};

// Scores: of an edge's scores, with
//   static constexpr int kArrays;                          arrays of the group that it uses, from 2
//   bool want_edges() const;                               whether it needs the edges' numbers
//   void prefetch(const EdgeGroup<T>&, const Part&) const; asks for what append will read
//   void append(EdgeGroup<T>&, const Part&, int64_t row);  array 0 for the edges of one row
//   void finish(EdgeGroup<T>&);                            the rest, for all edges of the group
template <class T, class Scores>
class ForwardPass {
 public:
  ForwardPass(const ForwardArgs<T>& args, const EdgeLayout& layout, const std::vector<Tile>& tiles,
              const Scores& scores)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        tiles_(tiles),
        scores_(scores),
        rows_{args.values, heads_ * features_, features_},
        group_(layout, 2 + Scores::kArrays, 2 * layout.stride),
        acc_(static_cast<size_t>(heads_ * features_)) {}

  void begin(int64_t) {}

  void row(int64_t i) {
    const int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(i, begin, end, true);
      return;
    }
    std::vector<T> top(static_cast<size_t>(layout_.stride)), sum(top.size());
    const bool any = max_of_piece(i, begin, end, true, top.data());
    if (any) sum_of_piece(i, begin, end, true, top.data(), sum.data(), acc_.data());
    write(i, any, top.data(), sum.data(), acc_.data());
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    scores();
    T* score = group_.array(0);
    for (size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count == 0) continue;
      T* from = score + part.first * layout_.stride;
      row_max(layout_, part.count, from, top(r));
      row_shift(layout_, part.count, top(r), from);
    }
    exponentials(score);
    for (size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count == 0) continue;
      row_sum(layout_, part.count, score + part.first * layout_.stride, false, sum(r));
    }
    drop(score);
    for (size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count > 0) accumulate(part, score, false, acc_.data());
      write(part.row, part.count > 0, top(r), sum(r), acc_.data());
    }
    group_.clear();
  }

  // A long row, by pieces. top[h] = max of the scores of edges [begin, end) of row i, and of its
  // loop when `last`. False: there is no edge.
  bool max_of_piece(int64_t i, int64_t begin, int64_t end, bool last, T* top) {
    bool any = false;
    each_group(i, begin, end, last, [&](const typename EdgeGroup<T>::Part& part) {
      scores();
      row_max(layout_, part.count, group_.array(0), this->top(0));
      for (int64_t h = 0; h < layout_.stride; ++h)
        top[h] = any ? std::max(top[h], this->top(0)[h]) : this->top(0)[h];
      any = true;
    });
    return any;
  }

  // sum[h] and acc[h, :] over the same edges, of exp(score - top) and of its products with z.
  void sum_of_piece(int64_t i, int64_t begin, int64_t end, bool last, const T* top, T* sum,
                    T* acc) {
    bool add = false;
    each_group(i, begin, end, last, [&](const typename EdgeGroup<T>::Part& part) {
      scores();
      T* score = group_.array(0);
      row_shift(layout_, part.count, top, score);
      exponentials(score);
      row_sum(layout_, part.count, score, add, sum);
      drop(score);
      accumulate(part, score, add, acc);
      add = true;
    });
  }

  // Writes stats and out of row i.
  void write(int64_t i, bool any, const T* top, const T* sum, const T* acc) {
    T* stats = a_.stats + i * a_.stats_row + a_.stats_first;
    const int64_t width = a_.form.mean_heads ? features_ : heads_ * features_;
    T* out = a_.out + i * width;
    if (!any) {
      for (int64_t h = 0; h < heads_; ++h) stats[h] = stats[heads_ + h] = 0;
      for (int64_t c = 0; c < width; ++c) out[c] = a_.bias != nullptr ? a_.bias[c] : T(0);
      return;
    }
    for (int64_t h = 0; h < heads_; ++h) stats[h] = top[h];
    for (int64_t h = 0; h < heads_; ++h) stats[heads_ + h] = 1 / sum[h];
    if (a_.form.mean_heads) {
      const T scale = T(1) / static_cast<T>(heads_);
      for (int64_t c = 0; c < features_; ++c) {
        T total = 0;
        for (int64_t h = 0; h < heads_; ++h) total += acc[h * features_ + c] * stats[heads_ + h];
        out[c] = total * scale + (a_.bias != nullptr ? a_.bias[c] : T(0));
      }
      return;
    }
    for (int64_t h = 0; h < heads_; ++h) {
      const auto scale = hn::Set(RowTag<T>(), stats[heads_ + h]);
      const T *from = acc + h * features_,
              *bias = a_.bias != nullptr ? a_.bias + h * features_ : nullptr;
      T* to = out + h * features_;
      each_vector<T>(features_, [&](int64_t c, auto io) HWY_ATTR {
        const auto x = io.load(from + c);
        io.store(bias != nullptr ? hn::MulAdd(x, scale, io.load(bias + c)) : hn::Mul(x, scale),
                 to + c);
      });
    }
  }

 private:
  T* top(size_t part) { return group_.row(static_cast<int64_t>(part)); }
  T* sum(size_t part) { return top(part) + layout_.stride; }

  typename EdgeGroup<T>::Part append(int64_t i, int64_t begin, int64_t end, bool last) {
    const bool loops = a_.form.self_loops;
    const auto part = group_.append(i, begin, end, a_.graph.source, nullptr,
                                    a_.form.keep != nullptr || scores_.want_edges(), loops ? i : -1,
                                    loops && last ? i : -1, a_.graph.offsets[a_.graph.targets] + i);
    prefetch_rows(part.count, group_.index.data() + part.first, rows_,
                  rows_.row * int64_t{sizeof(T)});
    scores_.prefetch(group_, part);
    return part;
  }

  // Array 0 of all edges of the group. Only now, when what was asked for ahead has come.
  void scores() {
    for (const auto& part : group_.parts()) scores_.append(group_, part, part.row);
    scores_.finish(group_);
  }

  // f(part) for groups of the edges [begin, end) of row i; group_ is empty before and after.
  template <class F>
  void each_group(int64_t i, int64_t begin, int64_t end, bool last, F&& f) {
    const int64_t most = layout_.capacity - 1;
    do {
      const int64_t stop = std::min(end, begin + most);
      const auto part = append(i, begin, stop, last && stop == end);
      if (part.count > 0) f(part);
      group_.clear();
      begin = stop;
    } while (begin < end);
  }

  void exponentials(T* score) {
    for (int64_t at = 0, total = layout_.padded(group_.count()); at < total; at += layout_.lanes)
      store(exp(load(score + at)), score + at);
  }
  void drop(T* weight) {
    if (a_.form.keep == nullptr) return;
    T* factor = group_.array(1);
    gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    for (int64_t at = 0, total = layout_.padded(group_.count()); at < total; at += layout_.lanes)
      store(load(weight + at) * load(factor + at), weight + at);
  }
  void accumulate(const typename EdgeGroup<T>::Part& part, const T* weight, bool add, T* acc) {
    accumulate_rows(tiles_, part.count, group_.index.data() + part.first, rows_,
                    weight + part.first * layout_.stride, layout_.stride, features_, add, acc);
  }

  const ForwardArgs<T>& a_;
  int64_t heads_, features_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  Scores scores_;
  Rows<T> rows_;
  EdgeGroup<T> group_;
  std::vector<T> acc_;
};

// The whole pass. scores: one to copy for each thread.
template <class T, class Scores>
void forward_pass(const ForwardArgs<T>& a, const EdgeLayout& layout, const Scores& scores) {
  const int64_t width = a.form.heads * a.form.features;
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  using Pass = ForwardPass<T, Scores>;
  const RowBlocks blocks(a.graph.targets, a.graph.offsets, gat_grain(width));
  const auto hubs = blocks.run([&] { return Pass(a, layout, tiles, scores); });
  for (const int64_t row : hubs) {
    const int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const int64_t pieces = blocks.pieces(row), grain = blocks.grain();
    std::vector<T> top(static_cast<size_t>(pieces * layout.stride)), sum(top.size());
    std::vector<T> acc(static_cast<size_t>(pieces * width));
    std::vector<std::uint8_t> any(static_cast<size_t>(pieces));
    const auto each_piece = [&](auto&& f) {
      parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
        Pass pass(a, layout, tiles, scores);
        for (int64_t p = first; p < last; ++p) {
          f(pass, p, begin + p * grain, std::min(end, begin + (p + 1) * grain), p + 1 == pieces);
        }
      });
    };
    each_piece([&](Pass& pass, int64_t p, int64_t from, int64_t to, bool last) {
      any[p] = pass.max_of_piece(row, from, to, last, top.data() + p * layout.stride);
    });
    bool some = false;
    for (int64_t p = 0; p < pieces; ++p) {
      if (!any[p]) continue;
      for (int64_t h = 0; h < layout.stride; ++h) {
        const T value = top[p * layout.stride + h];
        top[h] = some ? std::max(top[h], value) : value;
      }
      some = true;
    }
    each_piece([&](Pass& pass, int64_t p, int64_t from, int64_t to, bool last) {
      if (any[p]) {
        pass.sum_of_piece(row, from, to, last, top.data(), sum.data() + p * layout.stride,
                          acc.data() + p * width);
      }
    });
    for (int64_t p = 1; p < pieces; ++p) {
      for (int64_t h = 0; h < layout.stride; ++h) sum[h] += sum[p * layout.stride + h];
      for (int64_t c = 0; c < width; ++c) acc[c] += acc[p * width + c];
    }
    Pass(a, layout, tiles, scores).write(row, some, top.data(), sum.data(), acc.data());
  }
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
