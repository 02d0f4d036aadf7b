#include "dot.cuh"

namespace lipgrad::cuda {
namespace {

// A hub's outputs and stats from its slots: sums of exp(score - top) times v and e.
template <class T>
__global__ void __launch_bounds__(kGatThreads)
    forward_hubs_kernel(GatGraph graph, DotForm form, const T* scale, const T* slots, T* stats,
                        T* out, T* edge_sum) {
  struct Sums {
    T top;
    double sum, acc;
  };
  LIPGRAD_SHARED(Sums, shared, [kRowWarps][kWarp]);
  const Hub hub = hub_of({graph.targets, graph.edges, graph.offsets}, blockIdx.x);
  if (hub.row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t heads = form.heads, width = heads * form.features,
                     edge_width = heads * form.edge_features, columns = width + edge_width,
                     size = dot_slot_size(form, 1);
  const std::int64_t share = (hub.parts + kRowWarps - 1) / kRowWarps, begin = warp * share,
                     end = begin + share < hub.parts ? begin + share : hub.parts;
  const auto shift = [](T from, T to) { return from == to ? 1.0 : double(scalar::exp(from - to)); };
  for (std::int64_t c = lane; c - lane < columns; c += kWarp) {
    const std::int64_t at = c < columns ? c : 0,
                       h = at < width ? at / form.features : (at - width) / form.edge_features;
    Sums mine{T(-INFINITY), 0, 0};
    const auto add = [&](const Sums& other) {
      const T top = other.top > mine.top ? other.top : mine.top;
      const double a = shift(mine.top, top), b = shift(other.top, top);
      mine = {top, mine.sum * a + other.sum * b, mine.acc * a + other.acc * b};
    };
    for (std::int64_t p = begin; p < end; ++p) {
      const T* slot = slots + hub.slot(p) * size;
      add({slot[columns + h], double(slot[columns + heads + h]), double(slot[at])});
    }
    __syncthreads();  // the last round may still read `shared`
    shared[warp][lane] = mine;
    __syncthreads();
    mine = shared[0][lane];
    for (int w = 1; w < kRowWarps; ++w) add(shared[w][lane]);
    if (warp > 0 || c >= columns) continue;
    const T y = T(mine.acc / mine.sum);
    if (at >= width) {
      edge_sum[hub.row * edge_width + at - width] = y;
      continue;
    }
    out[hub.row * width + at] = y;
    if (at % form.features != 0) continue;
    T* stat = stats + hub.row * 3 * heads + h;
    stat[0] = T(form.factor) * (scale != nullptr ? scale[hub.row * heads + h] : T(1));
    stat[heads] = mine.top;
    stat[2 * heads] = T(1 / mine.sum);
  }
}

// out(targets, D) = the mean over the heads of x(targets, H, D).
template <class T>
__global__ void mean_kernel(std::int64_t n, std::int64_t heads, std::int64_t features, const T* x,
                            T* out) {
  const std::int64_t t = thread_index();
  if (t >= n) return;
  const T* from = x + t / features * heads * features + t % features;
  T sum = 0;
  for (std::int64_t h = 0; h < heads; ++h) sum += from[h * features];
  out[t] = sum / T(heads);
}

}  // namespace

template <class T>
void dot_attention_forward(const GatGraph& graph, const DotForm& form, const DotInput<T>& in,
                           T* stats, T* out, T* edge_sum) {
  const std::int64_t width = form.heads * form.features, n = graph.targets * form.features;
  const Scratch<T> heads(form.mean_heads ? graph.targets * width : 0);
  T* to = form.mean_heads ? heads.get() : out;
  const Csr csr{graph.targets, graph.edges, nullptr};
  const Scratch<T> slots(2 * csr.pieces() * dot_slot_size(form, 1));
  DotArgs<T> args{};
  args.own[0] = {in.q, in.q_row, 0};
  args.far[0] = {in.k, in.k_row, 0};
  args.far[1] = {in.v, in.v_row, 0};
  args.scale = in.scale;
  args.qe = in.qe;
  args.e = in.e;
  args.stats = stats;
  args.sum[0] = to;
  args.sum_row[0] = width;
  args.edge_sum = edge_sum;
  args.slots = slots.get();
  const bool fits =
      fits_float4(form.features, in.q, in.k, in.v, to) && (in.q_row | in.k_row | in.v_row) % 4 == 0;
  with_gat_split<T>(form, fits, [&](auto v, auto c, auto s) {
    launch_dot<T, decltype(v)::value, decltype(c)::value, decltype(s)::value, DotPass::forward>(
        graph, form, args);
  });
  launch(forward_hubs_kernel<T>, blocks_for(csr.pieces(), 1), kGatThreads, 0, graph, form, in.scale,
         slots.get(), stats, to, edge_sum);
  if (form.mean_heads)
    launch(mean_kernel<T>, blocks_for(n, 256), 256, 0, n, form.heads, form.features, heads.get(),
           out);
}

template void dot_attention_forward(const GatGraph&, const DotForm&, const DotInput<float>&, float*,
                                    float*, float*);
template void dot_attention_forward(const GatGraph&, const DotForm&, const DotInput<double>&,
                                    double*, double*, double*);

}  // namespace lipgrad::cuda
