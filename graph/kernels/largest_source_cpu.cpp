#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <lipgrad/core/threads.h>
#include <lipgrad/graph/kernels/head_sums.h>
#include <lipgrad/graph/kernels/largest_source.h>
#include <lipgrad/graph/kernels/row_blocks.h>

namespace lipgrad::cpu {
namespace {

constexpr std::int64_t grain = kHeadGrain;

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

// kHeads: the number of heads, or 0 for any.
template <class T, int kHeads>
class Largest {
 public:
  Largest(const GatGraph& graph, bool self_loops, std::int64_t heads, const T* value)
      : graph_(graph), loops_(self_loops), count_(heads), value_(value) {}

  // Whether i has a source; else top is 0 and best -1.
  bool operator()(std::int64_t i, T* top, std::int32_t* best) const {
    const std::int64_t heads = kHeads > 0 ? kHeads : count_;
    const std::int64_t begin = graph_.offsets[i], end = graph_.offsets[i + 1];
    if (!loops_ && begin == end) {
      std::fill(top, top + heads, T(0));
      std::fill(best, best + heads, -1);
      return false;
    }
    const T* first = value_ + (loops_ ? i : graph_.source[begin]) * heads;
    for (std::int64_t h = 0; h < heads; ++h) top[h] = first[h];
    for (std::int64_t e = begin; e < end; ++e) {
      const T* value = value_ + graph_.source[e] * heads;
      for (std::int64_t h = 0; h < heads; ++h) top[h] = value[h] > top[h] ? value[h] : top[h];
    }
    const auto take = [&](std::int32_t j) {
      const T* value = value_ + j * heads;
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int32_t lower = j < best[h] ? j : best[h];
        best[h] = value[h] == top[h] ? lower : best[h];
      }
    };
    // With NaN among the values there may be none that equals the largest: then the first edge's.
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
  const T* value_;
};

// top[h], best[h]: the largest of value[j, h] over all sources j, and the lowest such j.
template <class T>
void largest_of_all(std::int64_t sources, std::int64_t heads, const T* value, T* top,
                    std::int32_t* best) {
  const std::int64_t rows = head_rows(heads), blocks = (sources + rows - 1) / rows;
  std::vector<std::int32_t> found(static_cast<std::size_t>(blocks * heads));
  const auto take = [&](std::int32_t j, std::int32_t* at) {
    for (std::int64_t h = 0; h < heads; ++h)
      if (value[j * heads + h] > value[at[h] * heads + h]) at[h] = j;
  };
  parallel_for(sources, rows, [&](std::int64_t begin, std::int64_t end) {
    std::int32_t* at = found.data() + begin / rows * heads;
    std::fill(at, at + heads, static_cast<std::int32_t>(begin));
    for (std::int64_t j = begin + 1; j < end; ++j) take(static_cast<std::int32_t>(j), at);
  });
  for (std::int64_t h = 0; h < heads; ++h) {
    best[h] = blocks > 0 ? found[h] : -1;
    for (std::int64_t b = 1; b < blocks; ++b) {
      const std::int32_t j = found[b * heads + h];
      if (value[j * heads + h] > value[best[h] * heads + h]) best[h] = j;
    }
    top[h] = blocks > 0 ? value[best[h] * heads + h] : T(0);
  }
}

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
void largest_source(const GatGraph& graph, bool self_loops, bool global, bool centre,
                    std::int64_t heads, const T* value, T* top, std::int32_t* argmax) {
  if (global) {
    std::vector<T> all(static_cast<std::size_t>(heads));
    largest_of_all(graph.sources, heads, value, all.data(), argmax);
    each_head(graph.targets, heads, [&](std::int64_t i, std::int64_t h) {
      top[i * heads + h] = all[h] + (centre ? value[i * heads + h] : T(0));
    });
    return;
  }
  with_heads(heads, [&](auto tag) {
    const Largest<T, decltype(tag)::value> largest(graph, self_loops, heads, value);
    each_row(graph.targets, graph.offsets, [&](std::int64_t i) {
      if (largest(i, top + i * heads, argmax + i * heads) && centre)
        for (std::int64_t h = 0; h < heads; ++h) top[i * heads + h] += value[i * heads + h];
    });
  });
}

template <class T>
void largest_source_backward(const GatGraph& graph, bool self_loops, bool global, bool centre,
                             std::int64_t heads, const std::int32_t* argmax, std::int64_t stride,
                             const T* grad, const T* factor, T* grad_value) {
  const auto finish = [&](std::int64_t j, std::int64_t h, T sum) {
    if (centre && j < graph.targets) sum += grad[j * stride + h];
    grad_value[j * heads + h] = factor != nullptr ? sum * factor[h] : sum;
  };
  if (global) {
    const std::vector<double> sums = head_sums(graph.targets, heads, stride, grad);
    each_head(graph.sources, heads, [&](std::int64_t j, std::int64_t h) {
      finish(j, h, argmax[h] == j ? static_cast<T>(sums[h]) : T(0));
    });
    return;
  }
  with_heads(heads, [&](auto tag) {
    each_row(graph.sources, graph.reverse_offsets, [&](std::int64_t j) {
      constexpr int kHeads = decltype(tag)::value;
      const std::int64_t count = kHeads > 0 ? kHeads : heads;
      T* to = grad_value + j * heads;
      std::fill(to, to + heads, T(0));
      const auto take = [&](std::int64_t i) {
        const std::int32_t* best = argmax + i * heads;
        const T* given = grad + i * stride;
        for (std::int64_t h = 0; h < count; ++h) to[h] += best[h] == j ? given[h] : T(0);
      };
      if (self_loops && j < graph.targets) take(j);
      for (std::int64_t p = graph.reverse_offsets[j]; p < graph.reverse_offsets[j + 1]; ++p) {
        const std::int64_t i = graph.reverse_target[p];
        // Edges that occur twice have one maximum; the loop has been taken.
        const bool again = p > graph.reverse_offsets[j] && graph.reverse_target[p - 1] == i;
        if (!again && !(self_loops && i == j)) take(i);
      }
      for (std::int64_t h = 0; h < heads; ++h) finish(j, h, to[h]);
    });
  });
}

template void largest_source(const GatGraph&, bool, bool, bool, std::int64_t, const float*, float*,
                             std::int32_t*);
template void largest_source(const GatGraph&, bool, bool, bool, std::int64_t, const double*,
                             double*, std::int32_t*);
template void largest_source_backward(const GatGraph&, bool, bool, bool, std::int64_t,
                                      const std::int32_t*, std::int64_t, const float*, const float*,
                                      float*);
template void largest_source_backward(const GatGraph&, bool, bool, bool, std::int64_t,
                                      const std::int32_t*, std::int64_t, const double*,
                                      const double*, double*);

}  // namespace lipgrad::cpu
