#include <lipgrad/graph/kernels/dot_attention.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/dot_forward_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/dot-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_DOT_FORWARD_CPU_ARGS
#define LIPGRAD_DOT_FORWARD_CPU_ARGS
namespace {
template <class T>
struct ForwardArgs {
  const GatGraph& graph;
  const DotForm& form;
  const DotInput<T>& in;
  T *stats, *out, *edge_sum;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// Of some edges of a target: top (stride), the sum of exp(score - top) (stride), and its products
// with v (H, D) and e (H, Fe).
template <class T>
struct Sums {
  T *top, *sum, *acc, *edge_acc;

  static std::int64_t size(const DotForm& form, const EdgeLayout& layout) {
    return 2 * layout.stride + form.heads * (form.features + form.edge_features);
  }
  Sums(const DotForm& form, const EdgeLayout& layout, T* at)
      : top(at),
        sum(at + layout.stride),
        acc(at + 2 * layout.stride),
        edge_acc(acc + form.heads * form.features) {}
};

template <class T>
class Forward {
 public:
  Forward(const ForwardArgs<T>& args, const EdgeLayout& layout, const std::vector<Tile>& tiles)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        layout_(layout),
        tiles_(tiles),
        edge_features_(args.graph, args.form, args.in),
        k_{args.in.k, args.in.k_row, features_},
        v_{args.in.v, args.in.v_row, features_},
        group_(layout, 2, 2 * layout.stride),
        numbers_(static_cast<std::size_t>(2 * Sums<T>::size(args.form, layout))),
        own_(args.form, layout, numbers_.data()),
        more_(args.form, layout, numbers_.data() + Sums<T>::size(args.form, layout)),
        multiplier_(static_cast<std::size_t>(layout.stride)) {}

  void begin(std::int64_t) {}

  void row(std::int64_t i) {
    const std::int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    if (!group_.has_room(end - begin)) finish();
    if (group_.has_room(end - begin)) {
      append(i, begin, end, true);
      return;
    }
    write(i, piece(i, begin, end, true, own_), own_);
  }

  // Does the rows that wait in the group.
  void finish() {
    if (group_.parts().empty()) return;
    T* score = group_.array(0);
    for (std::size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count == 0) continue;
      T *from = score + part.first * layout_.stride, *top = group_.row(static_cast<int64_t>(r));
      row_max(layout_, part.count, from, top);
      row_shift(layout_, part.count, top, from);
    }
    exponentials();
    for (std::size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      if (part.count > 0)
        row_sum(layout_, part.count, score + part.first * layout_.stride, false, sum(r));
    }
    drop();
    for (std::size_t r = 0; r < group_.parts().size(); ++r) {
      const auto& part = group_.parts()[r];
      Sums<T> sums = own_;
      sums.top = group_.row(static_cast<int64_t>(r));
      sums.sum = sum(r);
      if (part.count > 0) accumulate(part, sums);
      write(part.row, part.count > 0, sums);
    }
    group_.clear();
  }

  // A long row, by pieces: sums of the edges [begin, end) of row i, and of its loop when `last`.
  // False: there is no edge.
  bool piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, Sums<T> sums) {
    const std::int64_t most = layout_.capacity - 1;
    bool any = false;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const auto part = append(i, begin, stop, last && stop == end);
      if (part.count > 0) {
        const Sums<T>& to = any ? more_ : sums;
        row_max(layout_, part.count, group_.array(0), to.top);
        row_shift(layout_, part.count, to.top, group_.array(0));
        exponentials();
        row_sum(layout_, part.count, group_.array(0), false, to.sum);
        drop();
        accumulate(part, to);
        if (any) merge(sums, more_);
        any = true;
      }
      group_.clear();
      begin = stop;
    } while (begin < end);
    return any;
  }

  // Adds the edges of `from` to those of `to`; changes both.
  void merge(const Sums<T>& to, const Sums<T>& from) const {
    for (std::int64_t h = 0; h < heads_; ++h) {
      const T top = std::max(to.top[h], from.top[h]);
      const T mine = to.top[h] == top ? T(1) : std::exp(to.top[h] - top),
              theirs = from.top[h] == top ? T(1) : std::exp(from.top[h] - top);
      to.top[h] = top;
      to.sum[h] = to.sum[h] * mine + from.sum[h] * theirs;
      combine(features_, mine, theirs, from.acc + h * features_, to.acc + h * features_);
      const std::int64_t fe = edge_features_.features;
      combine(fe, mine, theirs, from.edge_acc + h * fe, to.edge_acc + h * fe);
    }
  }

  // Writes what is of row i.
  void write(std::int64_t i, bool any, const Sums<T>& sums) {
    T* stats = a_.stats + i * 3 * heads_;
    const std::int64_t width = a_.form.mean_heads ? features_ : heads_ * features_,
                       edge_width = heads_ * edge_features_.features;
    T *out = a_.out + i * width,
      *edge_sum = edge_width > 0 ? a_.edge_sum + i * edge_width : nullptr;
    for (std::int64_t h = 0; h < heads_; ++h) stats[h] = multiplier(i, h);
    for (std::int64_t h = 0; h < heads_; ++h) stats[heads_ + h] = any ? sums.top[h] : T(0);
    for (std::int64_t h = 0; h < heads_; ++h) stats[2 * heads_ + h] = any ? 1 / sums.sum[h] : T(0);
    if (!any) {
      std::fill(out, out + width, T(0));
      if (edge_sum != nullptr) std::fill(edge_sum, edge_sum + edge_width, T(0));
      return;
    }
    const T* inverse = stats + 2 * heads_;
    const T mean = T(1) / static_cast<T>(heads_);
    for (std::int64_t h = 0; h < heads_; ++h) {
      if (a_.form.mean_heads) {
        combine(features_, h > 0 ? T(1) : T(0), inverse[h] * mean, sums.acc + h * features_, out);
      } else {
        combine(features_, T(0), inverse[h], sums.acc + h * features_, out + h * features_);
      }
      const std::int64_t fe = edge_features_.features;
      if (edge_sum != nullptr)
        combine(fe, T(0), inverse[h], sums.edge_acc + h * fe, edge_sum + h * fe);
    }
  }

 private:
  T* sum(std::size_t part) { return group_.row(static_cast<int64_t>(part)) + layout_.stride; }
  T multiplier(std::int64_t i, std::int64_t h) const {
    const T factor = static_cast<T>(a_.form.factor);
    return a_.in.scale != nullptr ? factor * a_.in.scale[i * heads_ + h] : factor;
  }

  // to = mine to + theirs from; mine 0: without reading it.
  static void combine(std::int64_t n, T mine, T theirs, const T* from, T* to) {
    const RowTag<T> d;
    const auto a = hn::Set(d, mine), b = hn::Set(d, theirs);
    if (mine == T(0)) {
      each_vector<T>(n, [&](std::int64_t c, auto io)
                            HWY_ATTR { io.store(hn::Mul(io.load(from + c), b), to + c); });
    } else {
      each_vector<T>(n, [&](std::int64_t c, auto io) HWY_ATTR {
        io.store(hn::MulAdd(io.load(from + c), b, hn::Mul(io.load(to + c), a)), to + c);
      });
    }
  }

  // Appends edges with their scores.
  typename EdgeGroup<T>::Part append(std::int64_t i, std::int64_t begin, std::int64_t end,
                                     bool last) {
    const bool loops = a_.form.self_loops, edges = edge_features_.e != nullptr;
    const auto part = group_.append(i, begin, end, a_.graph.source, nullptr,
                                    a_.form.keep != nullptr || edges, loops ? i : -1,
                                    loops && last ? i : -1, a_.graph.offsets[a_.graph.targets] + i);
    const std::int32_t* index = group_.index.data() + part.first;
    const std::int64_t bytes = heads_ * features_ * std::int64_t{sizeof(T)};
    prefetch_rows(part.count, index, k_, bytes);
    prefetch_rows(part.count, index, v_, bytes);
    T* score = group_.array(0) + part.first * layout_.stride;
    row_dots(part.count, index, k_, a_.in.q + i * a_.in.q_row, features_, heads_, features_,
             layout_.stride, score);
    if (edges) {
      edge_features_.add_dots(layout_, part.count, nullptr, group_.edge.data() + part.first,
                              a_.in.qe + i * heads_ * edge_features_.features, score);
    }
    for (std::int64_t h = 0; h < heads_; ++h)
      multiplier_[static_cast<std::size_t>(h)] = multiplier(i, h);
    row_scale(layout_, part.count, multiplier_.data(), score);
    return part;
  }

  void exponentials() {
    T* score = group_.array(0);
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes)
      store(exp(load(score + at)), score + at);
  }
  void drop() {
    if (a_.form.keep == nullptr) return;
    T *weight = group_.array(0), *factor = group_.array(1);
    gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    for (std::int64_t at = 0, total = layout_.padded(group_.count()); at < total;
         at += layout_.lanes)
      store(load(weight + at) * load(factor + at), weight + at);
  }
  void accumulate(const typename EdgeGroup<T>::Part& part, const Sums<T>& sums) {
    const T* weight = group_.array(0) + part.first * layout_.stride;
    accumulate_rows(tiles_, part.count, group_.index.data() + part.first, v_, weight,
                    layout_.stride, features_, false, sums.acc);
    std::fill(sums.edge_acc, sums.edge_acc + heads_ * edge_features_.features, T(0));
    if (edge_features_.e != nullptr)
      edge_features_.accumulate(layout_, part.count, group_.edge.data() + part.first, weight,
                                sums.edge_acc);
  }

  const ForwardArgs<T>& a_;
  std::int64_t heads_, features_;
  const EdgeLayout& layout_;
  const std::vector<Tile>& tiles_;
  EdgeFeatures<T> edge_features_;
  Rows<T> k_, v_;
  EdgeGroup<T> group_;
  std::vector<T> numbers_;
  Sums<T> own_, more_;
  std::vector<T> multiplier_;
};

template <class T>
void forward(const ForwardArgs<T>& a) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<Tile> tiles = make_tiles<T>(a.form.heads, a.form.features);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets,
                         gat_grain(a.form.heads * a.form.features));
  const auto hubs = blocks.run([&] { return Forward<T>(a, layout, tiles); });
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), grain = blocks.grain(),
                       size = Sums<T>::size(a.form, layout);
    std::vector<T> numbers(static_cast<std::size_t>(pieces * size));
    std::vector<std::uint8_t> any(static_cast<std::size_t>(pieces));
    const auto sums = [&](std::int64_t p) {
      return Sums<T>(a.form, layout, numbers.data() + p * size);
    };
    parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
      Forward<T> pass(a, layout, tiles);
      for (std::int64_t p = first; p < last; ++p)
        any[static_cast<std::size_t>(p)] =
            pass.piece(row, begin + p * grain, std::min(end, begin + (p + 1) * grain),
                       p + 1 == pieces, sums(p));
    });
    Forward<T> pass(a, layout, tiles);
    std::int64_t total = 0;  // the first piece with an edge holds the sum
    while (total < pieces && any[static_cast<std::size_t>(total)] == 0) ++total;
    for (std::int64_t p = total + 1; p < pieces; ++p)
      if (any[static_cast<std::size_t>(p)] != 0) pass.merge(sums(total), sums(p));
    const bool some = total < pieces;
    pass.write(row, some, sums(some ? total : 0));
  }
}

void forward_float(const ForwardArgs<float>& a) { forward(a); }
void forward_double(const ForwardArgs<double>& a) { forward(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(forward_float);
HWY_EXPORT(forward_double);

template <class T>
void dot_attention_forward(const GatGraph& graph, const DotForm& form, const DotInput<T>& in,
                           T* stats, T* out, T* edge_sum) {
  const ForwardArgs<T> args{graph, form, in, stats, out, edge_sum};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(forward_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(forward_double)(args);
  }
}

template void dot_attention_forward(const GatGraph&, const DotForm&, const DotInput<float>&, float*,
                                    float*, float*);
template void dot_attention_forward(const GatGraph&, const DotForm&, const DotInput<double>&,
                                    double*, double*, double*);

}  // namespace lipgrad::cpu
#endif
