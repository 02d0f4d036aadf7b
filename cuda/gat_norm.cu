#include <lipgrad/graph/kernels/largest_source.h>

#include "column_sums.cuh"
#include "gat.cuh"
#include "reduce.cuh"

namespace lipgrad::cuda {
namespace {

// factor(H) = (kappa |a|)^2, in double; one block.
template <class T>
__global__ void __launch_bounds__(256)
    factor_kernel(int heads, std::int64_t features, bool joint, double kappa, const T* a_src,
                  const T* a_dst, T* factor) {
  const auto squares = [&](std::int64_t c) {
    return double(a_src[c]) * double(a_src[c]) + double(a_dst[c]) * double(a_dst[c]);
  };
  double sum = 0;
  if (joint) {
    for (std::int64_t c = threadIdx.x; c < heads * features; c += 256) sum += squares(c);
    sum = block_reduce<256>(sum, Sum(), 0.0);
    for (int h = threadIdx.x; h < heads; h += 256) factor[h] = T(kappa * kappa * sum);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int h = static_cast<int>(threadIdx.x) / kWarp; h < heads; h += 256 / kWarp) {
    sum = 0;
    for (std::int64_t c = lane; c < features; c += kWarp) sum += squares(h * features + c);
    sum = warp_reduce(sum, Sum());
    if (lane == 0) factor[h] = T(kappa * kappa * sum);
  }
}

template <class T>
__global__ void scale_kernel(std::int64_t n, std::int64_t heads, const T* factor, T* squares) {
  const std::int64_t i = thread_index();
  if (i < n) squares[i] *= factor[i % heads];
}

// What the norm of a gets: the second row of every target's gradients.
template <class T>
struct RootGradients {
  const T* grad_norm;
  std::int64_t heads;

  __device__ double operator()(std::int64_t i, std::int64_t h) const {
    return double(grad_norm[(2 * i + 1) * heads + h]);
  }
};

template <class T>
__global__ void __launch_bounds__(256)
    a_factor_kernel(int heads, bool joint, double kappa, const T* factor, const double* sums,
                    T* a_factor) {
  double all = 0;
  if (joint) {
    for (int h = static_cast<int>(threadIdx.x); h < heads; h += 256) all += sums[h];
    all = block_reduce<256>(all, Sum(), 0.0);
  }
  for (int h = static_cast<int>(threadIdx.x); h < heads; h += 256) {
    const double square = double(factor[h]) / (kappa * kappa);
    a_factor[h] = square > 0 ? T((joint ? all : sums[h]) / square) : T(0);
  }
}

}  // namespace

template <class T>
void gat_norm(const GatGraph& graph, const GatForm& form, const GatNormForm& norm, const T* a_src,
              const T* a_dst, T* squares, T* target, std::int32_t* argmax, T* factor) {
  const std::int64_t n = graph.sources * form.heads;
  launch(factor_kernel<T>, 1, 256, 0, static_cast<int>(form.heads), form.features, norm.joint,
         norm.kappa, a_src, a_dst, factor);
  launch(scale_kernel<T>, blocks_for(n, 256), 256, 0, n, form.heads, factor, squares);
  largest_source(graph, form.self_loops, norm.global, norm.centre, form.heads, squares, target,
                 argmax);
}

template <class T>
void gat_norm_backward(const GatGraph& graph, const GatForm& form, const GatNormForm& norm,
                       const std::int32_t* argmax, const T* factor, const T* grad_norm, T* z_factor,
                       T* a_factor) {
  const std::int64_t heads = form.heads;
  largest_source_backward(graph, form.self_loops, norm.global, norm.centre, heads, argmax,
                          2 * heads, grad_norm, factor, z_factor);
  const Scratch<double> sums(heads);
  column_sums_of(graph.targets, heads, RootGradients<T>{grad_norm, heads}, sums.get());
  launch(a_factor_kernel<T>, 1, 256, 0, static_cast<int>(heads), norm.joint, norm.kappa, factor,
         sums.get(), a_factor);
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

}  // namespace lipgrad::cuda
