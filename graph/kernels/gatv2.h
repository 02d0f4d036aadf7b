#pragma once

// C++17, for host and device compilers alike. Fused multi-head graph attention with scores of a
// two-layer network (Brody, Alon, Yahav: How attentive are graph attention networks?, ICLR 2022,
// equation 7) for H heads of D features:
//
//   x_ij,h     = left[i,h] + right[j,h] (+ W_h edge_ij)     for the edges j -> i
//   e_ij,h     = inverse[i,h] <a[h], LeakyReLU(x_ij,h)>
//   alpha_ij,h = exp(e_ij,h) / sum over k -> i of exp(e_ik,h)
//   out[i,h,:] = sum over j -> i of keep_ij,h * alpha_ij,h * right[j,h,:]
//
// Nothing is stored per edge; backward computes x again from left and right, and the weights from
// two numbers per (node, head). Each pass owns the rows it writes, and its blocks and the order of
// all sums depend on the graph alone. GatGraph and GatForm are those of gat.h; targets and sources
// are the same nodes.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/graph/kernels/gat.h>

namespace lipgrad {

// Features of edges; features = 0: there are none.
template <class T>
struct Gatv2Edges {
  std::int64_t features = 0;  // F
  const T* weight = nullptr;  // (H, D, F)
  const T* value = nullptr;   // (E, F)
  const T* loop = nullptr;    // (targets, F), of the loops that self_loops adds; null: zeros
};

// What all passes read. inverse (targets, H), null: ones.
template <class T>
struct Gatv2Inputs {
  const T *left, *right, *a, *inverse;
  Gatv2Edges<T> edges;
};

// Denominators kappa |a| (|left[i]| + max_k |right[k]|) + eps, k over the sources of i or, if
// global, of all.
struct Gatv2NormForm {
  bool global = false;
  bool joint = false;  // |a| over all heads; else each head has its own
  double kappa = 1, eps = 1e-12;
};

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // length (rows, H): the l2 norm of each head of x (rows, H, D).
    template <class T> void head_lengths(std::int64_t rows, std::int64_t heads,
                                         std::int64_t features, const T* x, T* length);

    // inverse (targets, H), one over the denominators (0 where they are 0), from left_length and
    // right_length (nodes, H); argmax as largest_source leaves it; factor[h] = kappa |a|.
    template <class T>
    void gatv2_norm(const GatGraph& graph, const GatForm& form, const Gatv2NormForm& norm,
                    const T* a, const T* left_length, const T* right_length, T* inverse,
                    std::int32_t* argmax, T* factor);

    // out = the attention's output + bias; stats (targets, 2, H): [i,0,h] = max_j e_ij,h, [i,1,h] =
    // 1 / sum_j exp(e_ij,h - max), both 0 where a target has no edge. bias and out as in
    // gat_forward.
    template <class T>
    void gatv2_forward(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                       const T* bias, T* stats, T* out);

    // First pass of backward, over targets. centre (targets, H) = sum_j dL/dalpha_ij,h alpha_ij,h;
    // grad_left; grad_a (H, D), without what goes through the norm; grad_bias like bias, unless
    // null; grad_denominator (targets, H), unless null, of what inverse is one over.
    template <class T> void gatv2_backward_targets(const GatGraph& graph, const GatForm& form,
                                                   const Gatv2Inputs<T>& in, const T* stats,
                                                   const T* grad_out, T* centre, T* grad_left,
                                                   T* grad_a, T* grad_bias, T* grad_denominator);

    // The way back through gatv2_norm: of grad_left[i,h] += c left[i,h], left_factor (targets, H)
    // holds the c; right_factor the same of right; of grad_a[h] += c a[h], a_factor (H) does.
    template <class T>
    void gatv2_norm_backward(const GatGraph& graph, const GatForm& form, const Gatv2NormForm& norm,
                             const std::int32_t* argmax, const T* factor, const T* inverse,
                             const T* left_length, const T* right_length, const T* grad_denominator,
                             T* left_factor, T* right_factor, T* a_factor);

    // Second pass, over sources: grad_right, from right as values and in the scores.
    template <class T>
    void gatv2_backward_sources(const GatGraph& graph, const GatForm& form,
                                const Gatv2Inputs<T>& in, const T* stats, const T* centre,
                                const T* grad_out, T* grad_right);

    // Third pass, over targets, for the features of edges: grad_weight (H, D, F), grad_value (E, F)
    // and grad_loop (targets, F); null: not wanted.
    template <class T>
    void gatv2_backward_edges(const GatGraph& graph, const GatForm& form, const Gatv2Inputs<T>& in,
                              const T* stats, const T* centre, const T* grad_out, T* grad_weight,
                              T* grad_value, T* grad_loop);

    // x[i,h,:] += factor[i,h] y[i,h,:] over rows (rows, H, D); factor (H) if shared.
    template <class T>
    void add_scaled_heads(std::int64_t rows, std::int64_t heads, std::int64_t features, bool shared,
                          const T* factor, const T* y, T* x);)
