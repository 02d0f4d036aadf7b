// What the passes of attention with GATv2's scores share, for one Highway target. Included once per
// target by gatv2_*cpu.cpp, after foreach_target.h and outside of any namespace.

#if defined(LIPGRAD_GRAPH_KERNELS_GATV2_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_GRAPH_KERNELS_GATV2_INL_H
#undef LIPGRAD_GRAPH_KERNELS_GATV2_INL_H
#else
#define LIPGRAD_GRAPH_KERNELS_GATV2_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <lipgrad/graph/kernels/gat-inl.h>
#include <lipgrad/graph/kernels/gatv2.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// weight (H D, F) as (F, H D).
template <class T>
std::vector<T> transposed_weight(const Gatv2Edges<T>& edges, int64_t width) {
  std::vector<T> result(static_cast<size_t>(edges.features * width));
  for (int64_t c = 0; c < width; ++c)
    for (int64_t f = 0; f < edges.features; ++f)
      result[f * width + c] = edges.weight[c * edges.features + f];
  return result;
}

// LeakyReLU.
template <class T>
struct Leaky {
  explicit Leaky(double negative_slope)
      : slope(hn::Set(RowTag<T>(), static_cast<T>(negative_slope))) {}
  RowVec<T> slope;
  HWY_INLINE RowVec<T> operator()(RowVec<T> x) const {
    const RowTag<T> d;
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, slope));
  }
  HWY_INLINE RowVec<T> derivative(RowVec<T> x) const {
    const RowTag<T> d;
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Set(d, T(1)), slope);
  }
};

// x_ij of edges at hand: the node's own row, that of the node at the other end, and W edge_ij.
template <class T, bool kEdges>
class EdgeSums {
 public:
  // rows: of the nodes at the other ends. edge_weight: transposed_weight().
  EdgeSums(const GatGraph& graph, const GatForm& form, const Gatv2Edges<T>& edges, const T* rows,
           const T* edge_weight)
      : edges_(edges),
        width_(form.heads * form.features),
        count_(graph.edges),
        rows_(rows),
        weight_(edge_weight) {}

  // One edge, between the node whose row is `own` and node `other`.
  struct Edge {
    const T *own, *row, *weight, *value;
    int64_t width, features;

    // x at number c of the row.
    template <class Io>
    HWY_INLINE RowVec<T> at(int64_t c, Io io) const {
      auto x = hn::Add(io.load(own + c), io.load(row + c));
      if constexpr (kEdges) {
        if (value != nullptr)
          for (int64_t f = 0; f < features; ++f)
            x = hn::MulAdd(hn::Set(RowTag<T>(), value[f]), io.load(weight + f * width + c), x);
      }
      return x;
    }
  };
  HWY_INLINE Edge edge(const T* own, int32_t other, int64_t number) const {
    return {own,    rows_ + other * width_,      weight_, kEdges ? value(number) : nullptr,
            width_, kEdges ? edges_.features : 0};
  }
  // The edge's features, null: zeros.
  HWY_INLINE const T* value(int64_t number) const {
    if (number < count_) return edges_.value + number * edges_.features;
    return edges_.loop != nullptr ? edges_.loop + (number - count_) * edges_.features : nullptr;
  }

 private:
  const Gatv2Edges<T>& edges_;
  int64_t width_, count_;
  const T *rows_, *weight_;
};

// sums[k, h] = the sum of the lanes of f(k, h). sums as row_dots leaves them.
template <class T, class F>
HWY_INLINE void sums_of_lanes(const EdgeLayout& layout, int64_t count, T* sums, F&& f) {
  const int64_t heads = layout.heads;
#if HWY_TARGET <= HWY_AVX2
  if constexpr (std::is_same_v<T, float>) {
    if (heads == layout.stride && heads < 8) {
      const RowTag<float> d;
      RowVec<float> v[8];
      const int64_t together = 8 / heads;
      for (int64_t k = 0; k < count; k += together, sums += 8) {
        for (int64_t e = 0, u = 0; e < together; ++e)
          for (int64_t h = 0; h < heads; ++h, ++u) v[u] = f(std::min(k + e, count - 1), h);
        hn::StoreU(sums_of_eight(v), d, sums);
      }
      return;
    }
  }
#endif
  for (int64_t k = 0; k < count; ++k)
    for (int64_t h = 0; h < heads; ++h)
      sums[k * layout.stride + h] = hn::GetLane(hn::SumOfLanes(RowTag<T>(), f(k, h)));
  for (int64_t k = 0; k < count; ++k)
    for (int64_t h = heads; h < layout.stride; ++h) sums[k * layout.stride + h] = 0;
}

// score[k, h] = <a[h], LeakyReLU(x)> of `count` edges between the node whose row is `own` and
// nodes index[k].
template <class T, bool kEdges>
HWY_INLINE void edge_scores(const EdgeLayout& layout, const EdgeSums<T, kEdges>& sums,
                            const GatForm& form, const T* a, const T* own, int64_t count,
                            const int32_t* index, const int64_t* number, T* score) {
  const Leaky<T> leaky(form.negative_slope);
  const int64_t features = form.features;
  sums_of_lanes(layout, count, score, [&](int64_t k, int64_t h) HWY_ATTR {
    const auto edge = sums.edge(own, index[k], kEdges ? number[k] : 0);
    auto sum = hn::Zero(RowTag<T>());
    each_vector<T>(features, [&](int64_t at, auto io) HWY_ATTR {
      const int64_t c = h * features + at;
      sum = hn::MulAdd(io.load(a + c), leaky(edge.at(c, io)), sum);
    });
    return sum;
  });
}

// x[k, h] *= factor[h].
template <class T>
HWY_INLINE void scale_rows(const EdgeLayout& layout, int64_t count, const T* factor, T* x) {
  for (int64_t k = 0; k < count; ++k)
    for (int64_t h = 0; h < layout.heads; ++h) x[k * layout.stride + h] *= factor[h];
}

// The edges of targets, with the known sums of their rows: what passes over targets need of an
// edge.
template <class T, bool kEdges>
class TargetEdges {
 public:
  using Part = typename EdgeGroup<T>::Part;

  TargetEdges(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in, const T* stats,
              const T* grad_out, const T* edge_weight, const EdgeLayout& layout)
      : group(layout, 5, 0),
        sums(graph, form, in.edges, in.right, edge_weight),
        graph_(graph),
        form_(form),
        in_(in),
        stats_(stats),
        layout_(layout),
        heads_(form.heads),
        width_(form.heads * form.features),
        g_(form, grad_out),
        rows_{in.right, width_, form.features},
        buffer_(static_cast<size_t>(layout.stride)) {}

  // Appends the edges [begin, end) of target i, and its loop when `last`.
  Part append(int64_t i, int64_t begin, int64_t end, bool last) {
    const bool loops = form_.self_loops;
    const Part part =
        group.append(i, begin, end, graph_.source, nullptr, form_.keep != nullptr || kEdges,
                     loops ? i : -1, loops && last ? i : -1, graph_.edges + i);
    const int32_t* index = group.index.data() + part.first;
    prefetch_rows(part.count, index, rows_, width_ * int64_t{sizeof(T)});
    if (part.count == 0) return part;
    const int64_t at = part.first * layout_.stride;
    T* score = group.array(0) + at;
    edge_scores(layout_, sums, form_, in_.a, in_.left + i * width_, part.count, index,
                group.edge.data() + part.first, score);
    if (in_.inverse != nullptr) scale_rows(layout_, part.count, in_.inverse + i * heads_, score);
    row_dots(part.count, index, rows_, g_.rows.at + i * g_.rows.row, g_.rows.head, heads_,
             form_.features, layout_.stride, group.array(1) + at);
    return part;
  }

  // For all edges of the group: array 0 becomes alpha, array 1 dalpha; array 3 the scores.
  void weights() {
    T *score = group.array(0), *dots = group.array(1), *factor = group.array(2),
      *kept_scores = group.array(3);
    const int64_t total = layout_.padded(group.count());
    std::copy(score, score + total, kept_scores);
    for (const Part& part : group.parts()) {
      const T* top = padded_heads(layout_, stats_ + part.row * 2 * heads_, buffer_.data());
      row_shift(layout_, part.count, top, score + part.first * layout_.stride);
    }
    if (form_.keep != nullptr)
      gather_keep(layout_, group.count(), group.edge.data(), form_, factor);
    const Simd<T> scale(g_.scale);
    for (int64_t at = 0; at < total; at += layout_.lanes) {
      store(exp(load(score + at)), score + at);
      const Simd<T> product = load(dots + at) * scale;
      store(form_.keep != nullptr ? product * load(factor + at) : product, dots + at);
    }
    for (const Part& part : group.parts())
      scale_rows(layout_, part.count, stats_ + (part.row * 2 + 1) * heads_,
                 score + part.first * layout_.stride);
  }

  // centre[h] += sum_k alpha dalpha over a part's edges.
  void add_centre(const Part& part, T* centre) {
    const T *alpha = group.array(0) + part.first * layout_.stride,
            *grad = group.array(1) + part.first * layout_.stride;
    for (int64_t k = 0; k < part.count; ++k)
      for (int64_t h = 0; h < heads_; ++h)
        centre[h] += alpha[k * layout_.stride + h] * grad[k * layout_.stride + h];
  }

  // Array 4: the gradient at <a, LeakyReLU(x)>, from the row's centre; denominator[h], unless null,
  // += the gradient at the denominator.
  void score_gradients(const Part& part, const T* centre, T* denominator) {
    const int64_t first = part.first * layout_.stride;
    const T *alpha = group.array(0) + first, *grad = group.array(1) + first,
            *score = group.array(3) + first;
    T* to = group.array(4) + first;
    for (int64_t h = 0; h < heads_; ++h) {
      const T inverse = in_.inverse != nullptr ? in_.inverse[part.row * heads_ + h] : T(1);
      T sum = 0;
      for (int64_t k = 0; k < part.count; ++k) {
        const int64_t at = k * layout_.stride + h;
        const T gradient = alpha[at] * (grad[at] - centre[h]) * inverse;
        sum += gradient * score[at];
        to[at] = gradient;
      }
      if (denominator != nullptr) denominator[h] -= sum;
    }
  }

  EdgeGroup<T> group;
  EdgeSums<T, kEdges> sums;

 private:
  const GatGraph& graph_;
  const GatForm& form_;
  const Gatv2Inputs<T>& in_;
  const T* stats_;
  const EdgeLayout& layout_;
  int64_t heads_, width_;
  Cotangent<T> g_;
  Rows<T> rows_;
  std::vector<T> buffer_;
};

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
