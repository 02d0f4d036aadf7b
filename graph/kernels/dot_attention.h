#pragma once

// C++17, for host and device compilers alike. Fused multi-head dot-product attention over the edges
// of a graph (Vaswani et al.: Attention is all you need, NeurIPS 2017, section 3.2.1; on graphs
// with features of edges Shi et al.: Masked label prediction, IJCAI 2021, equations 3 and 4), for H
// heads of D features and, of an edge, Fe features:
//
//   t_ij,h     = <q[i,h], k[j,h]> + <qe[i,h], e[ij]>          for the edges j -> i
//   alpha_ij,h = softmax over the edges into i of m[i,h] t_ij,h,     m = factor scale
//   out[i,h,:]      = sum over j of keep_ij,h alpha_ij,h v[j,h,:]
//   edge_sum[i,h,:] = sum over j of keep_ij,h alpha_ij,h e[ij,:]
//
// Nothing is ever stored per edge: what an edge needs in backward is computed again from three
// numbers per (node, head). Each pass owns the rows it writes, its blocks and the order of all sums
// depend on the graph alone.

#include <lipgrad/graph/kernels/gat.h>

namespace lipgrad {

// GatForm's heads, features, self_loops, mean_heads and keep; edges that are loops added by
// self_loops have no features (zeros).
struct DotForm : GatForm {
  std::int64_t edge_features = 0;  // 0: neither qe nor e is read, nor edge_sum written
  double factor = 1;               // of all scores
};

template <class T>
struct DotInput {
  // (nodes, H, D), rows q_row, k_row and v_row numbers apart.
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t q_row = 0, k_row = 0, v_row = 0;
  const T* scale = nullptr;  // (targets, H); null: ones
  const T* qe = nullptr;     // (targets, H, Fe)
  const T* e = nullptr;      // (E, Fe), or null
};

// Gradients of the two outputs; null: zeros, of edge_sum only.
template <class T>
struct DotCotangents {
  const T* out = nullptr;
  const T* edge_sum = nullptr;
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // out (targets, H, D), or (targets, D) under mean_heads; edge_sum (targets, H, Fe). stats
    // (targets, 3, H): m, max_j m t and 1 / sum_j exp(m t - max), the last two 0 where a target has
    // no edge: its outputs are zeros.
    template <class T>
    void dot_attention_forward(const GatGraph& graph, const DotForm& form, const DotInput<T>& in,
                               T* stats, T* out, T* edge_sum);

    // First pass of backward, over targets. Writes centre (targets, H): sum_j alpha dL/dalpha;
    // grad_q (rows grad_q_row apart), grad_scale (unless null) and grad_qe.
    template <class T>
    void dot_attention_backward_targets(const GatGraph& graph, const DotForm& form,
                                        const DotInput<T>& in, const T* stats,
                                        const DotCotangents<T>& grad, T* centre, T* grad_q,
                                        std::int64_t grad_q_row, T* grad_scale, T* grad_qe);

    // Second pass, over sources: grad_k and grad_v, rows grad_k_row and grad_v_row apart.
    template <class T>
    void dot_attention_backward_sources(const GatGraph& graph, const DotForm& form,
                                        const DotInput<T>& in, const T* stats, const T* centre,
                                        const DotCotangents<T>& grad, T* grad_k,
                                        std::int64_t grad_k_row, T* grad_v,
                                        std::int64_t grad_v_row);

    // Third pass, over edges: grad_e (E, Fe).
    template <class T>
    void dot_attention_backward_edges(const GatGraph& graph, const DotForm& form,
                                      const DotInput<T>& in, const T* stats, const T* centre,
                                      const DotCotangents<T>& grad, T* grad_e);)
