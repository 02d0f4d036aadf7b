#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/graph/kernels/row_blocks.h>

namespace lipgrad::cpu {
namespace {

// Edges that make a block worth its while: some tens of microseconds.
constexpr std::int64_t grain = 8192;

// f(row) for all rows, in blocks of about as many edges; a row is never cut.
template <class F>
void each_row(std::int64_t rows, const std::int64_t* offsets, F&& f) {
  struct Pass {
    F& row;
    void begin(std::int64_t) {}
    void finish() {}
  };
  const RowBlocks blocks(rows, offsets, grain);
  for (const std::int64_t hub : blocks.run([&] { return Pass{f}; })) f(hub);
}

// The largest of square[j, h] over the sources j of target i, and the lowest such j. kHeads: the
// number of heads, or 0 for any.
template <class T, int kHeads>
class Largest {
 public:
  Largest(const GatGraph& graph, const GatForm& form, const T* squares)
      : graph_(graph), loops_(form.self_loops), count_(form.heads), squares_(squares) {}

  // Whether i has an edge; else top is 0 and best -1.
  bool operator()(std::int64_t i, T* top, std::int32_t* best) const {
    const std::int64_t heads = kHeads > 0 ? kHeads : count_;
    const std::int64_t begin = graph_.offsets[i], end = graph_.offsets[i + 1];
    if (!loops_ && begin == end) {
      std::fill(top, top + heads, T(0));
      std::fill(best, best + heads, -1);
      return false;
    }
    const T* first = squares_ + (loops_ ? i : graph_.source[begin]) * heads;
    for (std::int64_t h = 0; h < heads; ++h) top[h] = first[h];
    for (std::int64_t e = begin; e < end; ++e) {
      const T* square = squares_ + graph_.source[e] * heads;
      for (std::int64_t h = 0; h < heads; ++h) top[h] = square[h] > top[h] ? square[h] : top[h];
    }
    const auto take = [&](std::int32_t j) {
      const T* square = squares_ + j * heads;
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int32_t lower = j < best[h] ? j : best[h];
        best[h] = square[h] == top[h] ? lower : best[h];
      }
    };
    // With NaN among the squares there may be none that equals the largest: then the first edge's.
    const std::int32_t none = std::numeric_limits<std::int32_t>::max();
    std::fill(best, best + heads, none);
    if (loops_) take(static_cast<std::int32_t>(i));
    for (std::int64_t e = begin; e < end; ++e) take(graph_.source[e]);
    for (std::int64_t h = 0; h < heads; ++h)
      if (best[h] == none) best[h] = loops_ ? static_cast<std::int32_t>(i) : graph_.source[begin];
    return true;
  }

 private:
  const GatGraph& graph_;
  bool loops_;
  std::int64_t count_;
  const T* squares_;
};

// f(std::integral_constant) of the number of heads, or of 0 for other numbers than these.
template <class F>
void with_heads(std::int64_t heads, F&& f) {
  switch (heads) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 8:
      return f(std::integral_constant<int, 8>());
    default:
      return f(std::integral_constant<int, 0>());
  }
}

}  // namespace

template <class T>
void gat_norm(const GatGraph& graph, const GatForm& form, const GatNormForm& norm, const T* a_src,
              const T* a_dst, T* squares, T* target, std::int32_t* argmax, T* factor) {
  const std::int64_t heads = form.heads, features = form.features;
  std::vector<double> length(static_cast<std::size_t>(heads));
  double all = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t c = h * features; c < (h + 1) * features; ++c) {
      length[h] += static_cast<double>(a_src[c]) * a_src[c];
      length[h] += static_cast<double>(a_dst[c]) * a_dst[c];
    }
    all += length[h];
  }
  for (std::int64_t h = 0; h < heads; ++h)
    factor[h] = static_cast<T>(norm.kappa * norm.kappa * (norm.joint ? all : length[h]));
  parallel_for(graph.sources, std::max<std::int64_t>(1, grain / heads),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t j = begin; j < end; ++j)
                   for (std::int64_t h = 0; h < heads; ++h) squares[j * heads + h] *= factor[h];
               });
  with_heads(heads, [&](auto tag) {
    const Largest<T, decltype(tag)::value> largest(graph, form, squares);
    each_row(graph.targets, graph.offsets, [&](std::int64_t i) {
      T* top = target + i * heads;
      if (largest(i, top, argmax + i * heads) && norm.centre)
        for (std::int64_t h = 0; h < heads; ++h) top[h] += squares[i * heads + h];
    });
  });
}

template <class T>
void gat_norm_backward(const GatGraph& graph, const GatForm& form, const GatNormForm& norm,
                       const std::int32_t* argmax, const T* factor, const T* grad_norm, T* z_factor,
                       T* a_factor) {
  const std::int64_t heads = form.heads;
  with_heads(heads, [&](auto tag) {
    each_row(graph.sources, graph.reverse_offsets, [&](std::int64_t j) {
      constexpr int kHeads = decltype(tag)::value;
      const std::int64_t count = kHeads > 0 ? kHeads : heads;
      T* to = z_factor + j * heads;
      std::fill(to, to + heads, T(0));
      const auto take = [&](std::int64_t i) {
        const std::int32_t* best = argmax + i * heads;
        const T* grad = grad_norm + i * 2 * heads;
        for (std::int64_t h = 0; h < count; ++h) to[h] += best[h] == j ? grad[h] : T(0);
      };
      if (form.self_loops && j < graph.targets) take(j);
      for (std::int64_t p = graph.reverse_offsets[j]; p < graph.reverse_offsets[j + 1]; ++p) {
        const std::int64_t i = graph.reverse_target[p];
        // Edges that occur twice have one maximum; the loop has been taken.
        const bool again = p > graph.reverse_offsets[j] && graph.reverse_target[p - 1] == i;
        if (!again && !(form.self_loops && i == j)) take(i);
      }
      if (norm.centre && j < graph.targets)
        for (std::int64_t h = 0; h < heads; ++h) to[h] += grad_norm[j * 2 * heads + h];
      for (std::int64_t h = 0; h < heads; ++h) to[h] *= factor[h];
    });
  });

  // Sums over fixed blocks of targets, in order.
  const std::int64_t rows = std::max<std::int64_t>(1, grain / heads);
  const std::int64_t blocks = (graph.targets + rows - 1) / rows;
  std::vector<double> parts(static_cast<std::size_t>(blocks * heads));
  parallel_for(graph.targets, rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        parts[static_cast<std::size_t>(i / rows * heads + h)] +=
            static_cast<double>(grad_norm[(i * 2 + 1) * heads + h]);
  });
  std::vector<double> sums(static_cast<std::size_t>(heads));
  double all = 0;
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t h = 0; h < heads; ++h) sums[h] += parts[b * heads + h];
  for (std::int64_t h = 0; h < heads; ++h) all += sums[h];
  for (std::int64_t h = 0; h < heads; ++h) {
    const double square = static_cast<double>(factor[h]) / (norm.kappa * norm.kappa);
    a_factor[h] = square > 0 ? static_cast<T>((norm.joint ? all : sums[h]) / square) : T(0);
  }
}

template void gat_norm(const GatGraph&, const GatForm&, const GatNormForm&, const float*,
                       const float*, float*, float*, std::int32_t*, float*);
template void gat_norm(const GatGraph&, const GatForm&, const GatNormForm&, const double*,
                       const double*, double*, double*, std::int32_t*, double*);
template void gat_norm_backward(const GatGraph&, const GatForm&, const GatNormForm&,
                                const std::int32_t*, const float*, const float*, float*, float*);
template void gat_norm_backward(const GatGraph&, const GatForm&, const GatNormForm&,
                                const std::int32_t*, const double*, const double*, double*,
                                double*);

}  // namespace lipgrad::cpu
