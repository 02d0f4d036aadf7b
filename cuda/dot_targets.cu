#include "dot.cuh"

// With g = grad_out of the head, ge = grad_edge_sum and dalpha_ij = keep_ij (<g_i, v_j> + <ge_i,
// e_ij>), one pass over the edges of i gives c_i = sum_j alpha dalpha and, of k and e, the sums
// with weights alpha dalpha and alpha, whose difference, weighted 1 and c_i, is that with weights
// ds = alpha (dalpha - c_i): m_i times it are the gradients of q and qe, and its product with (q,
// qe) times factor is the gradient of scale.

namespace lipgrad::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kGatThreads)
    targets_hubs_kernel(GatGraph graph, DotForm form, DotArgs<T> args) {
  const Hub hub = hub_of({graph.targets, graph.edges, graph.offsets}, blockIdx.x);
  if (hub.row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t heads = form.heads, width = heads * form.features,
                     edge_width = heads * form.edge_features, size = dot_slot_size(form, 2);
  const bool writes = threadIdx.x < kWarp;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double own = hub_sum(hub, args.slots + 2 * (width + edge_width) + h, size, 0, 1);
    const double c = __shfl_sync(kAllLanes, own, 0);
    const double m = double(args.stats[hub.row * 3 * heads + h]);
    double through = 0;
    const auto part = [&](std::int64_t from, std::int64_t plain, std::int64_t n, const T* factor,
                          T* grad) {
      for (std::int64_t column = 0; column < n; column += kWarp) {
        const double x = hub_sum(hub, args.slots + from, size, column, n) -
                         c * hub_sum(hub, args.slots + plain, size, column, n);
        if (column + lane >= n) continue;
        through += x * double(factor[column + lane]);
        if (writes) grad[column + lane] = T(x * m);
      }
    };
    const std::int64_t at = h * form.features, edge_at = h * form.edge_features;
    part(at, width + at, form.features, args.own[0].at + hub.row * args.own[0].row + at,
         args.sum[0] + hub.row * args.sum_row[0] + at);
    if (edge_width > 0)
      part(2 * width + edge_at, 2 * width + edge_width + edge_at, form.edge_features,
           args.qe + hub.row * edge_width + edge_at,
           args.edge_sum + hub.row * edge_width + edge_at);
    through = warp_reduce(through, Sum());
    if (threadIdx.x != 0) continue;
    args.centre[hub.row * heads + h] = T(c);
    if (args.grad_scale != nullptr) args.grad_scale[hub.row * heads + h] = T(form.factor * through);
  }
}

// grad_e(E, Fe): a warp for each edge.
template <class T>
__global__ void __launch_bounds__(kGatThreads)
    edges_kernel(GatGraph graph, DotForm form, DotInput<T> in, const T* stats, const T* centre,
                 DotRows<T> grad_out, T grad_scale, const T* edge_cotangent, T* grad_e) {
  const std::int64_t edge = thread_index() / kWarp;
  if (edge >= graph.edges) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Csr csr{graph.targets, graph.edges, graph.offsets};
  const std::int64_t i = row_of(csr, edge), j = graph.source[edge], heads = form.heads,
                     features = form.features, fe = form.edge_features;
  const bool skipped = form.self_loops && i == j;
  const T* e = in.e + edge * fe;
  T* to = grad_e + edge * fe;
  if (skipped)
    for (std::int64_t f = lane; f < fe; f += kWarp) to[f] = T(0);
  if (skipped) return;
  for (std::int64_t h = 0; h < heads; ++h) {
    const T *q = in.q + i * in.q_row + h * features, *k = in.k + j * in.k_row + h * features,
            *v = in.v + j * in.v_row + h * features,
            *g = grad_out.at + i * grad_out.row + (grad_out.wrap > 0 ? 0 : h * features);
    const T *qe = in.qe + (i * heads + h) * fe,
            *ge = edge_cotangent != nullptr ? edge_cotangent + (i * heads + h) * fe : nullptr;
    T t = 0, grad = 0;
    for (std::int64_t c = lane; c < features; c += kWarp) {
      t += q[c] * k[c];
      grad += g[c] * v[c] * grad_scale;
    }
    for (std::int64_t f = lane; f < fe; f += kWarp) {
      t += qe[f] * e[f];
      if (ge != nullptr) grad += ge[f] * e[f];
    }
    t = warp_reduce(t, Sum());
    grad = warp_reduce(grad, Sum());
    const T* stat = stats + i * 3 * heads + h;
    const T alpha = scalar::exp(t * stat[0] - stat[heads]) * stat[2 * heads],
            kept = form.keep != nullptr ? keep_factor<T>(form, edge, static_cast<int>(h)) : T(1),
            of_score = alpha * (grad * kept - centre[i * heads + h]) * stat[0],
            of_sum = alpha * kept;
    for (std::int64_t f = lane; f < fe; f += kWarp) {
      T y = h > 0 ? to[f] : T(0);
      y += of_score * qe[f];
      if (ge != nullptr) y += of_sum * ge[f];
      to[f] = y;
    }
  }
}

}  // namespace

template <class T>
void dot_attention_backward_targets(const GatGraph& graph, const DotForm& form,
                                    const DotInput<T>& in, const T* stats,
                                    const DotCotangents<T>& grad, T* centre, T* grad_q,
                                    std::int64_t grad_q_row, T* grad_scale, T* grad_qe) {
  const std::int64_t width = form.heads * form.features;
  const Csr csr{graph.targets, graph.edges, nullptr};
  const Scratch<T> slots(2 * csr.pieces() * dot_slot_size(form, 2)),
      edge_plain(graph.targets * form.heads * form.edge_features);
  DotArgs<T> args{};
  args.own[0] = {in.q, in.q_row, 0};
  args.own[1] = cotangent_rows(form, grad.out);
  args.far[0] = {in.k, in.k_row, 0};
  args.far[1] = {in.v, in.v_row, 0};
  args.far_scale = form.mean_heads ? T(1) / T(form.heads) : T(1);
  args.qe = in.qe;
  args.e = in.e;
  args.edge_cotangent = grad.edge_sum;
  args.stats = const_cast<T*>(stats);  // this pass reads them
  args.centre = centre;
  args.sum[0] = grad_q;
  args.sum_row[0] = grad_q_row;
  args.edge_sum = grad_qe;
  args.edge_plain = edge_plain.get();
  args.grad_scale = grad_scale;
  args.slots = slots.get();
  const bool fits = fits_float4(form.features, in.q, in.k, in.v, grad.out, grad_q) &&
                    (in.q_row | in.k_row | in.v_row | grad_q_row) % 4 == 0;
  with_gat_split<T>(form, fits, [&](auto v, auto c, auto s) {
    const Scratch<T> plain(decltype(s)::value ? graph.targets * width : 0);
    args.plain = plain.get();
    launch_dot<T, decltype(v)::value, decltype(c)::value, decltype(s)::value, DotPass::targets>(
        graph, form, args);
  });
  launch(targets_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form, args);
}

template <class T>
void dot_attention_backward_edges(const GatGraph& graph, const DotForm& form, const DotInput<T>& in,
                                  const T* stats, const T* centre, const DotCotangents<T>& grad,
                                  T* grad_e) {
  launch(edges_kernel<T>, blocks_for(graph.edges, kRowWarps), kGatThreads, 0, graph, form, in,
         stats, centre, cotangent_rows(form, grad.out),
         form.mean_heads ? T(1) / T(form.heads) : T(1), grad.edge_sum, grad_e);
}

template void dot_attention_backward_targets(const GatGraph&, const DotForm&,
                                             const DotInput<float>&, const float*,
                                             const DotCotangents<float>&, float*, float*,
                                             std::int64_t, float*, float*);
template void dot_attention_backward_targets(const GatGraph&, const DotForm&,
                                             const DotInput<double>&, const double*,
                                             const DotCotangents<double>&, double*, double*,
                                             std::int64_t, double*, double*);
template void dot_attention_backward_edges(const GatGraph&, const DotForm&, const DotInput<float>&,
                                           const float*, const float*, const DotCotangents<float>&,
                                           float*);
template void dot_attention_backward_edges(const GatGraph&, const DotForm&, const DotInput<double>&,
                                           const double*, const double*,
                                           const DotCotangents<double>&, double*);

}  // namespace lipgrad::cuda
