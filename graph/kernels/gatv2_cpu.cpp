#include <lipgrad/graph/kernels/gatv2.h>

#include <cmath>

#include <lipgrad/graph/kernels/head_sums.h>
#include <lipgrad/graph/kernels/largest_source.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/gatv2_cpu.cpp>
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <lipgrad/graph/kernels/gat_forward-inl.h>
#include <lipgrad/graph/kernels/gatv2-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_GATV2_CPU_ARGS
#define LIPGRAD_GATV2_CPU_ARGS
namespace {
template <class T>
struct Gatv2Args {
  const GatGraph& graph;
  const GatForm& form;
  const Gatv2Inputs<T>& in;
  const T* bias;
  T *stats, *out;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T, bool kEdges>
class Gatv2Scores {
 public:
  static constexpr int kArrays = 0;

  Gatv2Scores(const Gatv2Args<T>& args, const EdgeLayout& layout, const T* edge_weight)
      : a_(args),
        layout_(layout),
        sums_(args.graph, args.form, args.in.edges, args.in.right, edge_weight) {}

  bool want_edges() const { return kEdges; }
  void prefetch(const EdgeGroup<T>&, const typename EdgeGroup<T>::Part&) const {}
  void append(EdgeGroup<T>& group, const typename EdgeGroup<T>::Part& part, std::int64_t i) {
    if (part.count == 0) return;
    const std::int64_t heads = a_.form.heads;
    T* score = group.array(0) + part.first * layout_.stride;
    edge_scores(layout_, sums_, a_.form, a_.in.a, a_.in.left + i * heads * a_.form.features,
                part.count, group.index.data() + part.first, group.edge.data() + part.first, score);
    if (a_.in.inverse != nullptr) scale_rows(layout_, part.count, a_.in.inverse + i * heads, score);
  }
  void finish(EdgeGroup<T>&) {}

 private:
  const Gatv2Args<T>& a_;
  const EdgeLayout& layout_;
  EdgeSums<T, kEdges> sums_;
};

template <class T>
void gatv2(const Gatv2Args<T>& a) {
  const EdgeLayout layout = EdgeLayout::of<T>(a.form.heads);
  const ForwardArgs<T> args{a.graph, a.form,           a.in.right, a.bias,
                            a.stats, 2 * a.form.heads, 0,          a.out};
  if (a.in.edges.features == 0)
    return forward_pass<T>(args, layout, Gatv2Scores<T, false>(a, layout, nullptr));
  const std::vector<T> weight = transposed_weight(a.in.edges, a.form.heads * a.form.features);
  forward_pass<T>(args, layout, Gatv2Scores<T, true>(a, layout, weight.data()));
}

void gatv2_float(const Gatv2Args<float>& a) { gatv2(a); }
void gatv2_double(const Gatv2Args<double>& a) { gatv2(a); }

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(gatv2_float);
HWY_EXPORT(gatv2_double);

template <class T>
void gatv2_forward(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                   const T* bias, T* stats, T* out) {
  const Gatv2Args<T> args{graph, form, in, bias, stats, out};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(gatv2_float)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(gatv2_double)(args);
  }
}

template <class T>
void head_lengths(std::int64_t rows, std::int64_t heads, std::int64_t features, const T* x,
                  T* length) {
  parallel_for(rows, std::max<std::int64_t>(1, 65536 / (heads * features)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t at = begin * heads; at < end * heads; ++at) {
                   const T* part = x + at * features;
                   T sum[8] = {};
                   std::int64_t c = 0;
                   for (; c + 8 <= features; c += 8)
                     for (int u = 0; u < 8; ++u) sum[u] += part[c + u] * part[c + u];
                   for (; c < features; ++c) sum[0] += part[c] * part[c];
                   length[at] = std::sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) +
                                          ((sum[4] + sum[5]) + (sum[6] + sum[7])));
                 }
               });
}

template <class T>
void gatv2_norm(const GatGraph& graph, const GatForm& form, const Gatv2NormForm& norm, const T* a,
                const T* left_length, const T* right_length, T* inverse, std::int32_t* argmax,
                T* factor) {
  const std::int64_t heads = form.heads, features = form.features;
  std::vector<double> squares(static_cast<std::size_t>(heads));
  double all = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t c = h * features; c < (h + 1) * features; ++c)
      squares[h] += static_cast<double>(a[c]) * a[c];
    all += squares[h];
  }
  for (std::int64_t h = 0; h < heads; ++h)
    factor[h] = static_cast<T>(norm.kappa * std::sqrt(norm.joint ? all : squares[h]));
  largest_source(graph, form.self_loops, norm.global, false, heads, right_length, inverse, argmax);
  each_head(graph.targets, heads, [&](std::int64_t i, std::int64_t h) {
    T& x = inverse[i * heads + h];
    x = factor[h] * (left_length[i * heads + h] + x) + static_cast<T>(norm.eps);
    x = x > 0 ? 1 / x : T(0);
  });
}

template <class T>
void gatv2_norm_backward(const GatGraph& graph, const GatForm& form, const Gatv2NormForm& norm,
                         const std::int32_t* argmax, const T* factor, const T* inverse,
                         const T* left_length, const T* right_length, const T* grad_denominator,
                         T* left_factor, T* right_factor, T* a_factor) {
  const std::int64_t heads = form.heads;
  largest_source_backward(graph, form.self_loops, norm.global, false, heads, argmax, heads,
                          grad_denominator, factor, right_factor);
  each_head(graph.sources, heads, [&](std::int64_t j, std::int64_t h) {
    const std::int64_t at = j * heads + h;
    right_factor[at] = right_length[at] > 0 ? right_factor[at] / right_length[at] : T(0);
  });
  std::vector<T> by_a(static_cast<std::size_t>(graph.targets * heads));
  each_head(graph.targets, heads, [&](std::int64_t i, std::int64_t h) {
    const std::int64_t at = i * heads + h;
    const T gradient = grad_denominator[at];
    left_factor[at] = left_length[at] > 0 ? factor[h] * gradient / left_length[at] : T(0);
    by_a[at] = inverse[at] > 0 ? gradient * (1 / inverse[at] - static_cast<T>(norm.eps)) : T(0);
  });
  const std::vector<double> sums = head_sums(graph.targets, heads, heads, by_a.data());
  double all = 0;
  for (const double sum : sums) all += sum;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double length = static_cast<double>(factor[h]) / norm.kappa;
    a_factor[h] =
        length > 0 ? static_cast<T>((norm.joint ? all : sums[h]) / (length * length)) : T(0);
  }
}

template <class T>
void add_scaled_heads(std::int64_t rows, std::int64_t heads, std::int64_t features, bool shared,
                      const T* factor, const T* y, T* x) {
  parallel_for(rows, std::max<std::int64_t>(1, 65536 / (heads * features)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t at = begin * heads; at < end * heads; ++at) {
                   const T by = factor[shared ? at % heads : at];
                   for (std::int64_t c = at * features; c < (at + 1) * features; ++c)
                     x[c] += by * y[c];
                 }
               });
}

#define LIPGRAD_GATV2(T)                                                                         \
  template void head_lengths(std::int64_t, std::int64_t, std::int64_t, const T*, T*);            \
  template void gatv2_norm(const GatGraph&, const GatForm&, const Gatv2NormForm&, const T*,      \
                           const T*, const T*, T*, std::int32_t*, T*);                           \
  template void gatv2_forward(const GatGraph&, const GatForm&, const Gatv2Inputs<T>&, const T*,  \
                              T*, T*);                                                           \
  template void gatv2_norm_backward(const GatGraph&, const GatForm&, const Gatv2NormForm&,       \
                                    const std::int32_t*, const T*, const T*, const T*, const T*, \
                                    const T*, T*, T*, T*);                                       \
  template void add_scaled_heads(std::int64_t, std::int64_t, std::int64_t, bool, const T*,       \
                                 const T*, T*)
LIPGRAD_GATV2(float);
LIPGRAD_GATV2(double);
#undef LIPGRAD_GATV2

}  // namespace lipgrad::cpu
#endif
