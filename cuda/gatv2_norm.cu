#include <lipgrad/graph/kernels/largest_source.h>

#include "column_sums.cuh"
#include "gatv2.cuh"
#include "reduce.cuh"

namespace lipgrad::cuda {
namespace {

// factor(H) = kappa |a|; one block.
template <class T>
__global__ void __launch_bounds__(256)
    length_factor_kernel(int heads, std::int64_t features, bool joint, double kappa, const T* a,
                         T* factor) {
  double all = 0;
  if (joint) {
    for (std::int64_t c = threadIdx.x; c < heads * features; c += 256)
      all += double(a[c]) * double(a[c]);
    all = block_reduce<256>(all, Sum(), 0.0);
  }
  for (int h = static_cast<int>(threadIdx.x) / kWarp; h < heads; h += 256 / kWarp) {
    double sum = 0;
    for (std::int64_t c = threadIdx.x % kWarp; c < features; c += kWarp)
      sum += double(a[h * features + c]) * double(a[h * features + c]);
    sum = warp_reduce(sum, Sum());
    if (threadIdx.x % kWarp == 0) factor[h] = T(kappa * scalar::sqrt(joint ? all : sum));
  }
}

// inverse(targets, H), from the largest lengths in it.
template <class T>
__global__ void inverse_kernel(std::int64_t n, std::int64_t heads, T eps, const T* factor,
                               const T* left_length, T* inverse) {
  const std::int64_t at = thread_index();
  if (at >= n) return;
  const T x = factor[at % heads] * (left_length[at] + inverse[at]) + eps;
  inverse[at] = x > T(0) ? T(1) / x : T(0);
}

// left_factor(targets, H), and right_factor(sources, H) in place from its sums.
template <class T>
__global__ void factors_kernel(std::int64_t lefts, std::int64_t rights, std::int64_t heads,
                               const T* factor, const T* left_length, const T* right_length,
                               const T* grad, T* left_factor, T* right_factor) {
  const std::int64_t at = thread_index();
  if (at < lefts)
    left_factor[at] =
        left_length[at] > T(0) ? factor[at % heads] * grad[at] / left_length[at] : T(0);
  if (at < rights)
    right_factor[at] = right_length[at] > T(0) ? right_factor[at] / right_length[at] : T(0);
}

// What |a| gets from a (target, head).
template <class T>
struct LengthTerms {
  const T *grad, *inverse;
  std::int64_t heads;
  T eps;

  __device__ double operator()(std::int64_t i, std::int64_t h) const {
    const std::int64_t at = i * heads + h;
    return inverse[at] > T(0) ? double(grad[at] * (T(1) / inverse[at] - eps)) : 0.0;
  }
};

template <class T>
__global__ void __launch_bounds__(256)
    length_gradient_kernel(int heads, bool joint, double kappa, const T* factor, const double* sums,
                           T* a_factor) {
  double all = 0;
  if (joint) {
    for (int h = static_cast<int>(threadIdx.x); h < heads; h += 256) all += sums[h];
    all = block_reduce<256>(all, Sum(), 0.0);
  }
  for (int h = static_cast<int>(threadIdx.x); h < heads; h += 256) {
    const double length = double(factor[h]) / kappa;
    a_factor[h] = length > 0 ? T((joint ? all : sums[h]) / (length * length)) : T(0);
  }
}

}  // namespace

template <class T>
void gatv2_norm(const GatGraph& graph, const GatForm& form, const Gatv2NormForm& norm, const T* a,
                const T* left_length, const T* right_length, T* inverse, std::int32_t* argmax,
                T* factor) {
  const std::int64_t n = graph.targets * form.heads;
  launch(length_factor_kernel<T>, 1, 256, 0, static_cast<int>(form.heads), form.features,
         norm.joint, norm.kappa, a, factor);
  largest_source(graph, form.self_loops, norm.global, false, form.heads, right_length, inverse,
                 argmax);
  launch(inverse_kernel<T>, blocks_for(n, 256), 256, 0, n, form.heads, static_cast<T>(norm.eps),
         factor, left_length, inverse);
}

template <class T>
void gatv2_norm_backward(const GatGraph& graph, const GatForm& form, const Gatv2NormForm& norm,
                         const std::int32_t* argmax, const T* factor, const T* inverse,
                         const T* left_length, const T* right_length, const T* grad_denominator,
                         T* left_factor, T* right_factor, T* a_factor) {
  const std::int64_t heads = form.heads, lefts = graph.targets * heads,
                     rights = graph.sources * heads;
  largest_source_backward(graph, form.self_loops, norm.global, false, heads, argmax, heads,
                          grad_denominator, factor, right_factor);
  launch(factors_kernel<T>, blocks_for(lefts > rights ? lefts : rights, 256), 256, 0, lefts, rights,
         heads, factor, left_length, right_length, grad_denominator, left_factor, right_factor);
  const Scratch<double> sums(heads);
  column_sums_of(graph.targets, heads,
                 LengthTerms<T>{grad_denominator, inverse, heads, static_cast<T>(norm.eps)},
                 sums.get());
  launch(length_gradient_kernel<T>, 1, 256, 0, static_cast<int>(heads), norm.joint, norm.kappa,
         factor, sums.get(), a_factor);
}

#define LIPGRAD_GATV2(T)                                                                         \
  template void gatv2_norm(const GatGraph&, const GatForm&, const Gatv2NormForm&, const T*,      \
                           const T*, const T*, T*, std::int32_t*, T*);                           \
  template void gatv2_norm_backward(const GatGraph&, const GatForm&, const Gatv2NormForm&,       \
                                    const std::int32_t*, const T*, const T*, const T*, const T*, \
                                    const T*, T*, T*, T*)
LIPGRAD_GATV2(float);
LIPGRAD_GATV2(double);
#undef LIPGRAD_GATV2

}  // namespace lipgrad::cuda
