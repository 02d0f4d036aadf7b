#pragma once

// C++17, for host and device compilers alike. Fused multi-head graph attention (Velickovic,
// Cucurull, Casanova, Romero, Lio, Bengio: Graph attention networks, ICLR 2018, equations 1 to 6)
// for H heads of D features:
//
//   e_ij,h     = LeakyReLU(s_dst[i,h] + s_src[j,h])      for the edges j -> i
//   alpha_ij,h = exp(e_ij,h) / sum over k -> i of exp(e_ik,h)
//   out[i,h,:] = sum over j -> i of keep_ij,h * alpha_ij,h * z[j,h,:]
//
// Nothing is ever stored per edge: what an edge needs in backward is computed again from four
// numbers per (node, head). Each pass owns the rows it writes, its blocks and the order of all sums
// depend on the graph alone.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

// The edges twice: as rows of the target nodes, and in reverse as rows of the source nodes (read in
// backward only). Target i and source i are the same node; targets <= sources.
struct GatGraph {
  std::int64_t targets = 0, sources = 0, edges = 0;
  const std::int64_t* offsets = nullptr;  // (targets + 1): row i is [offsets[i], offsets[i + 1])
  const std::int32_t* source = nullptr;   // (E)
  const std::int64_t* reverse_offsets = nullptr;  // (sources + 1)
  const std::int32_t* reverse_target = nullptr;   // (E)
  const std::int64_t* reverse_edge = nullptr;     // (E): where in `source` that edge stands
};

struct GatForm {
  std::int64_t heads = 1, features = 1;
  double negative_slope = 0.2;
  // Every target attends to itself once: edges (i, i) of the graph are passed over, and one is
  // added, which counts as edge E + i.
  bool self_loops = true;
  // The output is the mean over the heads, (targets, D), instead of (targets, H, D).
  bool mean_heads = false;
  // Dropout of alpha: bit h % 8 of keep[edge * ceil(H / 8) + h / 8] keeps it and multiplies it by
  // keep_scale. Null: no dropout.
  const std::uint8_t* keep = nullptr;
  double keep_scale = 1;
};

// Denominators of the scores (Dasoulas, Scaman, Virmaux: Lipschitz normalization for self-attention
// layers with application to graph neural networks, ICML 2021): before LeakyReLU, the score of edge
// j -> i is divided by sqrt(target[i,h] + source[j,h]) + eps. See gat_norm.
template <class T>
struct GatNorm {
  const T* target = nullptr;  // (targets, H); null: scores are not normalised
  const T* source = nullptr;  // (sources, H); null: zeros
  double eps = 1e-12;
};

// How the denominators kappa |a| r come about, a = [a_src | a_dst], r^2 = max_k |z_k|^2 + |z_c|^2,
// k over the sources of the edges into i.
struct GatNormForm {
  bool centre = true;  // c = i; else c = j, the edge's own source
  bool joint = false;  // |a| over all heads; else each head has its own
  double kappa = 4;
  bool global = false;  // k over all sources of the graph
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // s_src[j,h] = <a_src[h], z[j,h]> for all sources, stats[i,0,h] = <a_dst[h], z[i,h]> for the
    // targets. z (sources, H, D); a_src, a_dst (H, D); s_src (sources, H); stats (targets, 3, H).
    // squares (sources, H), unless null: |z[j,h]|^2.
    template <class T>
    void gat_scores(std::int64_t sources, std::int64_t targets, std::int64_t heads,
                    std::int64_t features, const T* z, const T* a_src, const T* a_dst, T* s_src,
                    T* stats, T* squares);

    // What GatNorm wants, from squares as gat_scores left them. squares (sources, H) is multiplied
    // by factor[h] = (kappa |a|)^2; target[i,h] = max_k squares[k,h], plus squares[i,h] in the
    // centre form; argmax[i,h] is that k, of equal ones the lowest, or -1 where i has no edge,
    // whose target is 0. In the global form argmax is (H), and nodes without edges are as others.
    // The caller takes squares as GatNorm::source in the form that is not centred.
    template <class T> void gat_norm(const GatGraph& graph, const GatForm& form,
                                     const GatNormForm& norm, const T* a_src, const T* a_dst,
                                     T* squares, T* target, std::int32_t* argmax, T* factor);

    // keep (edges + loops, ceil(H / 8)): bit (edge, h) is set with probability 1 - p, as drawn by
    // word edge * H + h of Philox (seed, draw).
    void gat_keep(std::int64_t edges, std::int64_t heads, double p, std::uint64_t seed,
                  std::uint64_t draw, std::uint8_t* keep);

    // out = the attention's output + bias; stats[i,1,h] = max_j e_ij,h, stats[i,2,h] = 1 / sum_j
    // exp(e_ij,h - max), both 0 where a target has no edge: its output is the bias alone. bias
    // (H D), or (D) under mean_heads, or null. Reads stats[i,0,h].
    template <class T>
    void gat_forward(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm, const T* z,
                     const T* s_src, const T* bias, T* stats, T* out);

    // First pass of backward, over targets. grad_out like out. Writes grad_stats (targets, 2, H):
    // [i,0,h] = sum_j dL/dalpha_ij,h alpha_ij,h, which is <grad_out, out> of the head before the
    // bias, and [i,1,h] = dL/ds_dst[i,h]; grad_bias like bias, unless null. With a norm, and r =
    // the root in its denominators, grad_norm (targets, 2, H): [i,0,h] = sum_j dL/dr_ij,h / r_ij,h
    // (0 where r is 0) and [i,1,h] = sum_j dL/dr_ij,h r_ij,h.
    template <class T>
    void gat_backward_targets(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                              const T* z, const T* s_src, const T* stats, const T* grad_out,
                              T* grad_stats, T* grad_norm, T* grad_bias);

    // The way back through gat_norm, after the pass over targets. Of grad_z[j,h] = ... + c z[j,h],
    // z_factor (sources, H) holds the c that comes from maxima and centres; of grad_a[h] = ... + c
    // a[h], a_factor (H) holds the c, for a_src and a_dst alike.
    template <class T>
    void gat_norm_backward(const GatGraph& graph, const GatForm& form, const GatNormForm& norm,
                           const std::int32_t* argmax, const T* factor, const T* grad_norm,
                           T* z_factor, T* a_factor);

    // Second pass, over sources: the whole gradients of z (through the scores too), a_src and
    // a_dst. With a norm, factor is gat_norm's, z_factor and a_factor are gat_norm_backward's.
    template <class T>
    void gat_backward_sources(const GatGraph& graph, const GatForm& form, const GatNorm<T>& norm,
                              const T* factor, const T* z_factor, const T* a_factor, const T* z,
                              const T* s_src, const T* stats, const T* grad_stats,
                              const T* grad_out, const T* a_src, const T* a_dst, T* grad_z,
                              T* grad_a_src, T* grad_a_dst);)
