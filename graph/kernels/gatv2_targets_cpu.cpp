#include <lipgrad/graph/kernels/gatv2.h>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/row_blocks.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gatv2_targets_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gatv2-inl.h>

// With g = grad_out of the head, dalpha_ij = keep_ij <g_i, right_j> and c_i = sum_j alpha_ij
// dalpha_ij, the gradient at <a, LeakyReLU(x_ij)> is w_ij = alpha_ij (dalpha_ij - c_i) inverse_i:
//
//   grad_left_i = a sum_j w_ij LeakyReLU'(x_ij)
//   grad_a = sum_ij w_ij LeakyReLU(x_ij)
//
// elementwise. Rows of more edges than a group holds are gone through twice: c_i comes first.

namespace lipgrad::cpu {
#ifndef LIPGRAD_GATV2_TARGETS_CPU_ARGS
#define LIPGRAD_GATV2_TARGETS_CPU_ARGS
namespace {
template <class T>
struct Gatv2TargetArgs {
  const GatGraph& graph;
  const GatForm& form;
  const Gatv2Inputs<T>& in;
  const T *stats, *grad_out;
  T *centre, *grad_left, *grad_a, *grad_bias, *grad_denominator;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T, bool kEdges>
class Gatv2TargetPass {
 public:
  using Part = typename EdgeGroup<T>::Part;

  // a_parts (blocks, H D), bias_parts (blocks, width) or null.
  Gatv2TargetPass(const Gatv2TargetArgs<T>& args, const EdgeLayout& layout, const T* edge_weight,
                  T* a_parts, T* bias_parts)
      : a_(args),
        heads_(args.form.heads),
        features_(args.form.features),
        width_(heads_ * features_),
        layout_(layout),
        g_(args.form, args.grad_out),
        edges_(args.graph, args.form, args.in, args.stats, args.grad_out, edge_weight, layout),
        leaky_(args.form.negative_slope),
        a_parts_(a_parts),
        bias_parts_(bias_parts) {}

  void begin(std::int64_t block) {
    a_part_ = a_parts_ + block * width_;
    if (bias_parts_ != nullptr) bias_part_ = bias_parts_ + block * g_.rows.row;
  }

  void row(std::int64_t i) {
    const std::int64_t begin = a_.graph.offsets[i], end = a_.graph.offsets[i + 1];
    if (!edges_.group.has_room(end - begin)) finish();
    if (edges_.group.has_room(end - begin)) {
      edges_.append(i, begin, end, true);
      return;
    }
    T* centre = a_.centre + i * heads_;
    std::fill(centre, centre + heads_, T(0));
    centre_of_piece(i, begin, end, true, centre);
    start(i);
    sums_of_piece(i, begin, end, true, centre, denominator(i), a_.grad_left + i * width_, a_part_);
    close(i);
  }

  // Does the rows that wait in the group.
  void finish() {
    if (edges_.group.parts().empty()) return;
    edges_.weights();
    for (const Part& part : edges_.group.parts()) {
      T* centre = a_.centre + part.row * heads_;
      std::fill(centre, centre + heads_, T(0));
      edges_.add_centre(part, centre);
      start(part.row);
      edges_.score_gradients(part, centre, denominator(part.row));
      add(part, a_.grad_left + part.row * width_, a_part_);
      close(part.row);
    }
    edges_.group.clear();
  }

  // A long row, by pieces: over edges [begin, end) of row i, and its loop when `last`, centre (H)
  // +=, then with the whole row's centre denominator (H), unless null, sum (H D) and a_sum (H D)
  // +=.
  void centre_of_piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, T* centre) {
    each_group(i, begin, end, last, [&](const Part& part) { edges_.add_centre(part, centre); });
  }
  void sums_of_piece(std::int64_t i, std::int64_t begin, std::int64_t end, bool last,
                     const T* centre, T* denominator, T* sum, T* a_sum) {
    each_group(i, begin, end, last, [&](const Part& part) {
      edges_.score_gradients(part, centre, denominator);
      add(part, sum, a_sum);
    });
  }

  void start(std::int64_t i) {
    T* left = a_.grad_left + i * width_;
    std::fill(left, left + width_, T(0));
    if (T* to = denominator(i)) std::fill(to, to + heads_, T(0));
  }
  // grad_left of row i, from its sums in place, and the row's part of grad_bias.
  void close(std::int64_t i) {
    T* left = a_.grad_left + i * width_;
    each_vector<T>(width_, [&](std::int64_t c, auto io) HWY_ATTR {
      io.store(hn::Mul(io.load(left + c), io.load(a_.in.a + c)), left + c);
    });
    if (bias_part_ == nullptr) return;
    const T* g = g_.rows.at + i * g_.rows.row;
    each_vector<T>(g_.rows.row, [&](std::int64_t c, auto io) HWY_ATTR {
      io.store(hn::Add(io.load(bias_part_ + c), io.load(g + c)), bias_part_ + c);
    });
  }

 private:
  T* denominator(std::int64_t i) {
    return a_.grad_denominator != nullptr ? a_.grad_denominator + i * heads_ : nullptr;
  }

  template <class F>
  void each_group(std::int64_t i, std::int64_t begin, std::int64_t end, bool last, F&& f) {
    const std::int64_t most = layout_.capacity - 1;
    do {
      const std::int64_t stop = std::min(end, begin + most);
      const Part part = edges_.append(i, begin, stop, last && stop == end);
      edges_.weights();
      f(part);
      edges_.group.clear();
      begin = stop;
    } while (begin < end);
  }

  // sum += w LeakyReLU'(x), a_sum += w LeakyReLU(x) over a part's edges.
  void add(const Part& part, T* sum, T* a_sum) {
    const T* weight = edges_.group.array(4) + part.first * layout_.stride;
    const std::int32_t* index = edges_.group.index.data() + part.first;
    const std::int64_t* number = edges_.group.edge.data() + part.first;
    const T* own = a_.in.left + part.row * width_;
    const RowTag<T> d;
    for (std::int64_t h = 0; h < heads_; ++h) {
      each_vector<T>(features_, [&](std::int64_t at, auto io) HWY_ATTR {
        const std::int64_t c = h * features_ + at;
        auto through_left = io.load(sum + c), through_a = io.load(a_sum + c);
        for (std::int64_t k = 0; k < part.count; ++k) {
          const auto w = hn::Set(d, weight[k * layout_.stride + h]);
          const auto x = edges_.sums.edge(own, index[k], kEdges ? number[k] : 0).at(c, io);
          through_left = hn::MulAdd(w, leaky_.derivative(x), through_left);
          through_a = hn::MulAdd(w, leaky_(x), through_a);
        }
        io.store(through_left, sum + c);
        io.store(through_a, a_sum + c);
      });
    }
  }

  const Gatv2TargetArgs<T>& a_;
  std::int64_t heads_, features_, width_;
  const EdgeLayout& layout_;
  Cotangent<T> g_;
  TargetEdges<T, kEdges> edges_;
  Leaky<T> leaky_;
  T *a_parts_, *bias_parts_, *a_part_ = nullptr, *bias_part_ = nullptr;
};

template <class T, bool kEdges>
void targets(const Gatv2TargetArgs<T>& a) {
  using Pass = Gatv2TargetPass<T, kEdges>;
  const std::int64_t heads = a.form.heads, width = heads * a.form.features;
  const EdgeLayout layout = EdgeLayout::of<T>(heads);
  const std::vector<T> weight = transposed_weight(a.in.edges, width);
  const RowBlocks blocks(a.graph.targets, a.graph.offsets, gat_grain(width));
  // One more part for the hubs.
  const std::int64_t parts = blocks.blocks() + 1,
                     g_width = Cotangent<T>(a.form, a.grad_out).rows.row;
  std::vector<T> bias(a.grad_bias != nullptr ? static_cast<std::size_t>(parts * g_width) : 0);
  std::vector<T> a_parts(static_cast<std::size_t>(parts * width));
  T* bias_parts = bias.empty() ? nullptr : bias.data();
  const auto make = [&] { return Pass(a, layout, weight.data(), a_parts.data(), bias_parts); };
  const auto hubs = blocks.run(make);
  for (const std::int64_t row : hubs) {
    const std::int64_t begin = a.graph.offsets[row], end = a.graph.offsets[row + 1];
    const std::int64_t pieces = blocks.pieces(row), size = heads + 2 * width;
    std::vector<T> sums(static_cast<std::size_t>(pieces * size));
    const auto each_piece = [&](auto&& f) {
      parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
        Pass pass = make();
        for (std::int64_t p = first; p < last; ++p) {
          const std::int64_t from = begin + p * blocks.grain();
          f(pass, sums.data() + p * size, from, std::min(end, from + blocks.grain()),
            p + 1 == pieces);
        }
      });
    };
    T* centre = a.centre + row * heads;
    std::fill(centre, centre + heads, T(0));
    each_piece([&](Pass& pass, T* to, std::int64_t from, std::int64_t stop, bool last) {
      pass.centre_of_piece(row, from, stop, last, to);
    });
    for (std::int64_t p = 0; p < pieces; ++p) {
      T* part = sums.data() + p * size;
      for (std::int64_t h = 0; h < heads; ++h) centre[h] += part[h];
      std::fill(part, part + heads, T(0));
    }
    each_piece([&](Pass& pass, T* to, std::int64_t from, std::int64_t stop, bool last) {
      pass.sums_of_piece(row, from, stop, last, centre, to, to + heads, to + heads + width);
    });
    Pass pass = make();
    pass.begin(blocks.blocks());
    pass.start(row);
    T *left = a.grad_left + row * width, *a_part = a_parts.data() + blocks.blocks() * width;
    for (std::int64_t p = 0; p < pieces; ++p) {
      const T* part = sums.data() + p * size;
      if (a.grad_denominator != nullptr)
        for (std::int64_t h = 0; h < heads; ++h) a.grad_denominator[row * heads + h] += part[h];
      for (std::int64_t c = 0; c < width; ++c) {
        left[c] += part[heads + c];
        a_part[c] += part[heads + width + c];
      }
    }
    pass.close(row);
  }
  add_parts(parts, width, a_parts, a.grad_a);
  if (a.grad_bias != nullptr) add_parts(parts, g_width, bias, a.grad_bias);
}

template <class T>
void targets_of(const Gatv2TargetArgs<T>& a) {
  return a.in.edges.features > 0 ? targets<T, true>(a) : targets<T, false>(a);
}
void gatv2_targets_float(const Gatv2TargetArgs<float>& a) { targets_of(a); }
void gatv2_targets_double(const Gatv2TargetArgs<double>& a) { targets_of(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(gatv2_targets_float);
HWY_EXPORT(gatv2_targets_double);

template <class T>
void gatv2_backward_targets(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                            const T* stats, const T* grad_out, T* centre, T* grad_left, T* grad_a,
                            T* grad_bias, T* grad_denominator) {
  const Gatv2TargetArgs<T> args{graph,  form,      in,     stats,     grad_out,
                                centre, grad_left, grad_a, grad_bias, grad_denominator};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(gatv2_targets_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(gatv2_targets_double)(args);
  }
}

template void gatv2_backward_targets(const GatGraph&, const GatForm&, const Gatv2Inputs<float>&,
                                     const float*, const float*, float*, float*, float*, float*,
                                     float*);
template void gatv2_backward_targets(const GatGraph&, const GatForm&, const Gatv2Inputs<double>&,
                                     const double*, const double*, double*, double*, double*,
                                     double*, double*);

}  // namespace lipgrad::cpu
#endif
