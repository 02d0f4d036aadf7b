#include <lipgrad/graph/kernels/gatv2.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gatv2_edges_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gatv2-inl.h>

// With w as in the pass over targets and y_ij = w_ij a LeakyReLU'(x_ij) of all heads, the gradient
// at x_ij: grad_weight = sum_ij y_ij edge_ij^T, grad_edge_ij = W^T y_ij.

namespace lipgrad::cpu {
#ifndef LIPGRAD_GATV2_EDGES_CPU_ARGS
#define LIPGRAD_GATV2_EDGES_CPU_ARGS
namespace {
template <class T>
struct Gatv2EdgeArgs {
  const GatGraph& graph;
  const GatForm& form;
  const Gatv2Inputs<T>& in;
  const T *stats, *centre, *grad_out;
  T *grad_weight, *grad_value, *grad_loop;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
class Gatv2EdgePass {
 public:
  using Part = typename EdgeGroup<T>::Part;

  // weight_parts (blocks, F, H D), or null.
  Gatv2EdgePass(const Gatv2EdgeArgs<T>& args, const EdgeLayout& layout, const T* edge_weight,
                T* weight_parts)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        width_(heads_ * features_),
        layout_(layout),
        edges_(args.graph, args.form, args.in, args.stats, args.grad_out, edge_weight, layout),
        leaky_(args.form.negative_slope),
        edge_weight_(edge_weight),
        weight_parts_(weight_parts),
        gradient_(static_cast<std::size_t>(width_)) {}

  void begin(std::int64_t block) {
    if (weight_parts_ != nullptr) part_ = weight_parts_ + block * a_.in.edges.features * width_;
  }
  void row(std::int64_t i) {
    std::int64_t begin = a_.graph.offsets[i];
    const std::int64_t end = a_.graph.offsets[i + 1], most = layout_.capacity - 1;
    clear(begin, end, i);
    if (!edges_.group.has_room(end - begin)) finish();
    while (end - begin > most) {
      edges_.append(i, begin, begin + most, false);
      finish();
      begin += most;
    }
    edges_.append(i, begin, end, true);
  }
  void finish() {
    if (edges_.group.parts().empty()) return;
    edges_.weights();
    for (const Part& part : edges_.group.parts()) {
      edges_.score_gradients(part, a_.centre + part.row * heads_, nullptr);
      for (std::int64_t k = part.first; k < part.first + part.count; ++k) add(part.row, k);
    }
    edges_.group.clear();
  }

 private:
  // Loops of the graph are passed over with self_loops, and get no gradient.
  void clear(std::int64_t begin, std::int64_t end, std::int64_t i) {
    const std::int64_t f = a_.in.edges.features;
    if (a_.grad_value != nullptr)
      std::fill(a_.grad_value + begin * f, a_.grad_value + end * f, T(0));
    if (a_.grad_loop != nullptr) std::fill(a_.grad_loop + i * f, a_.grad_loop + (i + 1) * f, T(0));
  }

  void add(std::int64_t i, std::int64_t k) {
    const std::int64_t number = edges_.group.edge[k], count = a_.in.edges.features;
    const auto edge = edges_.sums.edge(a_.in.left + i * width_, edges_.group.index[k], number);
    const T* weight = edges_.group.array(4) + k * layout_.stride;
    T* y = gradient_.data();
    for (std::int64_t h = 0; h < heads_; ++h) {
      const auto w = hn::Set(RowTag<T>(), weight[h]);
      each_vector<T>(features_, [&](std::int64_t at, auto io) HWY_ATTR {
        const std::int64_t c = h * features_ + at;
        io.store(hn::Mul(hn::Mul(w, io.load(a_.in.a + c)), leaky_.derivative(edge.at(c, io))),
                 y + c);
      });
    }
    const T* value = edges_.sums.value(number);
    if (part_ != nullptr && value != nullptr) {
      for (std::int64_t f = 0; f < count; ++f) {
        const auto x = hn::Set(RowTag<T>(), value[f]);
        T* to = part_ + f * width_;
        each_vector<T>(width_, [&](std::int64_t c, auto io) HWY_ATTR {
          io.store(hn::MulAdd(x, io.load(y + c), io.load(to + c)), to + c);
        });
      }
    }
    T* to = number < a_.graph.edges ? a_.grad_value : a_.grad_loop;
    if (to == nullptr) return;
    to += (number < a_.graph.edges ? number : i) * count;
    for (std::int64_t f = 0; f < count; ++f)
      to[f] = hn::GetLane(
          hn::SumOfLanes(RowTag<T>(), product_lanes<T, 0>(edge_weight_ + f * width_, y, width_)));
  }

  const Gatv2EdgeArgs<T>& a_;
  std::int64_t heads_, features_, width_;
  const EdgeLayout& layout_;
  TargetEdges<T, true> edges_;
  Leaky<T> leaky_;
  const T* edge_weight_;
  T *weight_parts_, *part_ = nullptr;
  std::vector<T> gradient_;
};

template <class T>
void edges_of(const Gatv2EdgeArgs<T>& a) {
  const std::int64_t width = a.form.heads * a.form.features, count = a.in.edges.features;
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const std::vector<T> weight = transposed_weight(a.in.edges, width);
  // Few blocks: each has sums of the weight's size.
  const RowBlocks blocks(a.graph.targets, a.graph.offsets,
                         std::max(gat_grain(width), (a.graph.edges + a.graph.targets) / 32));
  const std::int64_t parts = blocks.blocks() + 1;  // one more for the hubs
  std::vector<T> sums(a.grad_weight != nullptr ? static_cast<std::size_t>(parts * count * width)
                                               : 0);
  const auto make = [&] {
    return Gatv2EdgePass<T>(a, layout, weight.data(), sums.empty() ? nullptr : sums.data());
  };
  const auto hubs = blocks.run(make);
  if (!hubs.empty()) {
    auto pass = make();
    pass.begin(blocks.blocks());
    for (const std::int64_t row : hubs) pass.row(row);
    pass.finish();
  }
  if (a.grad_weight == nullptr) return;
  std::vector<T> total(static_cast<std::size_t>(count * width));
  add_parts(parts, count * width, sums, total.data());
  for (std::int64_t c = 0; c < width; ++c)
    for (std::int64_t f = 0; f < count; ++f) a.grad_weight[c * count + f] = total[f * width + c];
}

void gatv2_edges_float(const Gatv2EdgeArgs<float>& a) { edges_of(a); }
void gatv2_edges_double(const Gatv2EdgeArgs<double>& a) { edges_of(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(gatv2_edges_float);
HWY_EXPORT(gatv2_edges_double);

template <class T>
void gatv2_backward_edges(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                          const T* stats, const T* centre, const T* grad_out, T* grad_weight,
                          T* grad_value, T* grad_loop) {
  const Gatv2EdgeArgs<T> args{graph,    form,        in,         stats,    centre,
                              grad_out, grad_weight, grad_value, grad_loop};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(gatv2_edges_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(gatv2_edges_double)(args);
  }
}

template void gatv2_backward_edges(const GatGraph&, const GatForm&, const Gatv2Inputs<float>&,
                                   const float*, const float*, const float*, float*, float*,
                                   float*);
template void gatv2_backward_edges(const GatGraph&, const GatForm&, const Gatv2Inputs<double>&,
                                   const double*, const double*, const double*, double*, double*,
                                   double*);

}  // namespace lipgrad::cpu
#endif
