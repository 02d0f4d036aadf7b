#include <cstdint>
#include <vector>

#include <lipgrad/graph/kernels/gat.h>
#include <lipgrad/graph/kernels/head_sums.h>
#include <lipgrad/graph/kernels/largest_source.h>

namespace lipgrad::cpu {

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
  each_head(graph.sources, heads,
            [&](std::int64_t j, std::int64_t h) { squares[j * heads + h] *= factor[h]; });
  largest_source(graph, form.self_loops, norm.global, norm.centre, heads, squares, target, argmax);
}

template <class T>
void gat_norm_backward(const GatGraph& graph, const GatForm& form, const GatNormForm& norm,
                       const std::int32_t* argmax, const T* factor, const T* grad_norm, T* z_factor,
                       T* a_factor) {
  const std::int64_t heads = form.heads;
  largest_source_backward(graph, form.self_loops, norm.global, norm.centre, heads, argmax,
                          2 * heads, grad_norm, factor, z_factor);
  const std::vector<double> sums = head_sums(graph.targets, heads, 2 * heads, grad_norm + heads);
  double all = 0;
  for (const double sum : sums) all += sum;
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
