#include <algorithm>
#include <cstdint>
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
  struct Block {
    F& row;
    void finish() {}
  };
  const RowBlocks blocks(rows, offsets, grain);
  for (const std::int64_t hub : blocks.run([&](std::int64_t) { return Block{f}; })) f(hub);
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
  each_row(graph.targets, graph.offsets, [&](std::int64_t i) {
    T* top = target + i * heads;
    std::int32_t* best = argmax + i * heads;
    std::fill(best, best + heads, -1);
    std::fill(top, top + heads, T(0));
    const auto take = [&](std::int64_t j) {
      const T* square = squares + j * heads;
      for (std::int64_t h = 0; h < heads; ++h) {
        const bool first = best[h] < 0;
        if (first || square[h] > top[h] || (square[h] == top[h] && j < best[h])) {
          top[h] = square[h];
          best[h] = static_cast<std::int32_t>(j);
        }
      }
    };
    if (form.self_loops) take(i);
    for (std::int64_t e = graph.offsets[i]; e < graph.offsets[i + 1]; ++e)
      if (!form.self_loops || graph.source[e] != i) take(graph.source[e]);
    if (norm.centre && best[0] >= 0)
      for (std::int64_t h = 0; h < heads; ++h) top[h] += squares[i * heads + h];
  });
}

template <class T>
void gat_norm_backward(const GatGraph& graph, const GatForm& form, const GatNormForm& norm,
                       const std::int32_t* argmax, const T* factor, const T* grad_norm, T* z_factor,
                       T* a_factor) {
  const std::int64_t heads = form.heads;
  each_row(graph.sources, graph.reverse_offsets, [&](std::int64_t j) {
    T* to = z_factor + j * heads;
    std::fill(to, to + heads, T(0));
    const auto take = [&](std::int64_t i) {
      const std::int32_t* best = argmax + i * heads;
      for (std::int64_t h = 0; h < heads; ++h)
        if (best[h] == j) to[h] += grad_norm[i * 2 * heads + h];
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
