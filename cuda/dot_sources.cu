#include "dot.cuh"

// With g = grad_out of the head and ds_ij as in the pass over targets: dk_j = sum_i m_i ds_ij q_i,
// dv_j = sum_i keep_ij alpha_ij g_i.

namespace lipgrad::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    sources_hubs_kernel(GatGraph graph, DotForm form, DotArgs<T> args) {
  const Hub hub = hub_of({graph.sources, graph.edges, graph.reverse_offsets}, blockIdx.x);
  if (hub.row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t width = form.heads * form.features, size = dot_slot_size(form, 2);
  for (int s = 0; s < 2; ++s)
    for (std::int64_t column = 0; column < width; column += kWarp) {
      const double x = hub_sum(hub, args.slots + s * width, size, column, width);
      if (threadIdx.x < kWarp && column + lane < width)
        args.sum[s][hub.row * args.sum_row[s] + column + lane] = T(x);
    }
}

}  // namespace

template <class T>
void dot_attention_backward_sources(const GatGraph& graph, const DotForm& form,
                                    const DotInput<T>& in, const T* stats, const T* centre,
                                    const DotCotangents<T>& grad, T* grad_k,
                                    std::int64_t grad_k_row, T* grad_v, std::int64_t grad_v_row) {
  const Csr csr{graph.sources, graph.edges, nullptr};
  const Scratch<T> slots(2 * csr.pieces() * dot_slot_size(form, 2));
  DotArgs<T> args{};
  args.own[0] = {in.k, in.k_row, 0};
  args.own[1] = {in.v, in.v_row, 0};
  args.far[0] = {in.q, in.q_row, 0};
  args.far[1] = cotangent_rows(form, grad.out);
  args.far_scale = form.mean_heads ? T(1) / T(form.heads) : T(1);
  args.qe = in.qe;
  args.e = in.e;
  args.edge_cotangent = grad.edge_sum;
  args.stats = const_cast<T*>(stats);  // this pass reads both
  args.centre = const_cast<T*>(centre);
  args.sum[0] = grad_k;
  args.sum_row[0] = grad_k_row;
  args.sum[1] = grad_v;
  args.sum_row[1] = grad_v_row;
  args.slots = slots.get();
  const bool fits = fits_float4(form.features, in.q, in.k, in.v, grad.out, grad_k, grad_v) &&
                    (in.q_row | in.k_row | in.v_row | grad_k_row | grad_v_row) % 4 == 0;
  with_gat_split<T>(form, fits, [&](auto v, auto c, auto s) {
    launch_dot<T, decltype(v)::value, decltype(c)::value, decltype(s)::value, DotPass::sources>(
        graph, form, args);
  });
  launch(sources_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form, args);
}

template void dot_attention_backward_sources(const GatGraph&, const DotForm&,
                                             const DotInput<float>&, const float*, const float*,
                                             const DotCotangents<float>&, float*, std::int64_t,
                                             float*, std::int64_t);
template void dot_attention_backward_sources(const GatGraph&, const DotForm&,
                                             const DotInput<double>&, const double*, const double*,
                                             const DotCotangents<double>&, double*, std::int64_t,
                                             double*, std::int64_t);

}  // namespace lipgrad::cuda
