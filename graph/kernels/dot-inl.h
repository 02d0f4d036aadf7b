// What the passes of fused dot-product attention share, for one Highway target. Included once per
// target by dot_*cpu.cpp, after foreach_target.h and outside of any namespace.

#if defined(LIPGRAD_GRAPH_KERNELS_DOT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LIPGRAD_GRAPH_KERNELS_DOT_INL_H
#undef LIPGRAD_GRAPH_KERNELS_DOT_INL_H
#else
#define LIPGRAD_GRAPH_KERNELS_DOT_INL_H
#endif

#include <lipgrad/graph/kernels/dot_backward.h>
#include <lipgrad/graph/kernels/gat-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {

// x[k, h] *= by[h], over the edges of one row.
template <class T>
HWY_INLINE void row_scale(const EdgeLayout& layout, int64_t count, const T* by, T* x) {
  with_edge_tag<T>(layout, [&](auto d) HWY_ATTR {
    for (int64_t h = 0; h < layout.stride; h += static_cast<int64_t>(hn::Lanes(d))) {
      const auto factor = hn::LoadU(d, by + h);
      for (int64_t k = 0; k < count; ++k) {
        T* at = x + k * layout.stride + h;
        hn::StoreU(hn::Mul(hn::LoadU(d, at), factor), d, at);
      }
    }
  });
}

// The features of edges at hand: (E, Fe), or null.
template <class T>
struct EdgeFeatures {
  const T* e;
  int64_t edges, features;

  EdgeFeatures(const GatGraph& graph, const DotForm& form, const DotInput<T>& in)
      : e(form.edge_features > 0 ? in.e : nullptr),
        edges(graph.offsets[graph.targets]),
        features(form.edge_features) {}

  // dots[k, h] += <rows[index[k], h, :], e[edge[k], :]>, rows (nodes, H, Fe); loops have no
  // features. index null: all have row 0.
  HWY_INLINE void add_dots(const EdgeLayout& layout, int64_t count, const int32_t* index,
                           const int64_t* edge, const T* rows, T* dots) const {
    const RowTag<T> d;
    for (int64_t k = 0; k < count; ++k) {
      if (edge[k] >= edges) continue;
      const T* row = rows + (index != nullptr ? index[k] * layout.heads * features : 0);
      for (int64_t h = 0; h < layout.heads; ++h) {
        dots[k * layout.stride + h] += hn::GetLane(hn::SumOfLanes(
            d, product_lanes<T, 0>(row + h * features, e + edge[k] * features, features)));
      }
    }
  }

  // sum[h, :] += sum_k weight[k, h] e[edge[k], :].
  HWY_INLINE void accumulate(const EdgeLayout& layout, int64_t count, const int64_t* edge,
                             const T* weight, T* sum) const {
    for (int64_t k = 0; k < count; ++k) {
      if (edge[k] >= edges) continue;
      const T* row = e + edge[k] * features;
      for (int64_t h = 0; h < layout.heads; ++h) {
        const auto w = hn::Set(RowTag<T>(), weight[k * layout.stride + h]);
        T* to = sum + h * features;
        each_vector<T>(features, [&](int64_t c, auto io) HWY_ATTR {
          io.store(hn::MulAdd(io.load(row + c), w, io.load(to + c)), to + c);
        });
      }
    }
  }
};

// The edges of targets with their alpha and dL/dalpha, for the passes over targets and edges.
template <class T>
class TargetEdges {
 public:
  using Part = typename EdgeGroup<T>::Part;

  TargetEdges(const DotBackward<T>& args, const EdgeLayout& layout)
      : layout_(layout),
        a_(args),
        edge_features_(args.graph, args.form, args.in),
        g_(args.form, args.grad.out),
        k_{args.in.k, args.in.k_row, args.form.features},
        v_{args.in.v, args.in.v_row, args.form.features},
        group_(layout, 4, 0),
        buffer_(static_cast<std::size_t>(layout.stride)) {}

 protected:
  T* alpha(const Part& part) { return group_.array(0) + part.first * layout_.stride; }
  T* gradient(const Part& part) { return group_.array(1) + part.first * layout_.stride; }

  // Appends edges with t and <g_i, v_j>.
  Part append(int64_t i, int64_t begin, int64_t end, bool last) {
    const bool loops = a_.form.self_loops, edges = edge_features_.e != nullptr;
    const auto part = group_.append(i, begin, end, a_.graph.source, nullptr,
                                    a_.form.keep != nullptr || edges, loops ? i : -1,
                                    loops && last ? i : -1, a_.graph.offsets[a_.graph.targets] + i);
    const int32_t* index = group_.index.data() + part.first;
    const int64_t heads = a_.form.heads, features = a_.form.features,
                  bytes = heads * features * int64_t{sizeof(T)};
    prefetch_rows(part.count, index, k_, bytes);
    prefetch_rows(part.count, index, v_, bytes);
    row_dots(part.count, index, k_, a_.in.q + i * a_.in.q_row, features, heads, features,
             layout_.stride, alpha(part));
    row_dots(part.count, index, v_, g_.rows.at + i * g_.rows.row, g_.rows.head, heads, features,
             layout_.stride, gradient(part));
    if (edges) {
      const int64_t* edge = group_.edge.data() + part.first;
      const int64_t row = i * heads * edge_features_.features;
      edge_features_.add_dots(layout_, part.count, nullptr, edge, a_.in.qe + row, alpha(part));
    }
    return part;
  }

  // For all edges of the group: t becomes alpha, and the second array dL/dalpha.
  void weights() {
    T *score = group_.array(0), *dots = group_.array(1), *factor = group_.array(2);
    const int64_t total = layout_.padded(group_.count()), heads = a_.form.heads;
    const auto per_row = [&](int64_t row, int which) {
      return padded_heads(layout_, a_.stats + (row * 3 + which) * heads, buffer_.data());
    };
    for (const Part& part : group_.parts()) {
      row_scale(layout_, part.count, per_row(part.row, 0), alpha(part));
      row_shift(layout_, part.count, per_row(part.row, 1), alpha(part));
    }
    const Simd<T> scale(g_.scale);
    for (int64_t at = 0; at < total; at += layout_.lanes) {
      store(exp(load(score + at)), score + at);
      store(load(dots + at) * scale, dots + at);
    }
    for (const Part& part : group_.parts()) {
      row_scale(layout_, part.count, per_row(part.row, 2), alpha(part));
      if (edge_features_.e != nullptr && a_.grad.edge_sum != nullptr) {
        edge_features_.add_dots(layout_, part.count, nullptr, group_.edge.data() + part.first,
                                a_.grad.edge_sum + part.row * heads * edge_features_.features,
                                gradient(part));
      }
    }
    if (a_.form.keep == nullptr) return;
    gather_keep(layout_, group_.count(), group_.edge.data(), a_.form, factor);
    for (int64_t at = 0; at < total; at += layout_.lanes)
      store(load(dots + at) * load(factor + at), dots + at);
  }

  const EdgeLayout& layout_;
  const DotBackward<T>& a_;
  EdgeFeatures<T> edge_features_;
  Cotangent<T> g_;
  Rows<T> k_, v_;
  EdgeGroup<T> group_;
  std::vector<T> buffer_;
};

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
