#pragma once

#include <optional>

#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

struct DotAttentionOptions {
  // Of all scores. Unset: 1 / sqrt(D), or 1 where a tensor of scales is given.
  std::optional<double> factor = {};
  // Every node attends to itself once, whatever self-loops the graph has. No second graph is built.
  bool self_loops = false;
  // Probability that a weight is dropped in training mode.
  double dropout = 0;
  // The mean over the heads instead of their concatenation.
  bool mean_heads = false;
};

// Dot-product attention over the edges of a graph (Vaswani et al.: Attention is all you need,
// NeurIPS 2017, section 3.2.1) of H heads with D features:
//
//   s_ij,h     = factor scale[i,h] <q[i,h], k[j,h]>  for the edges j -> i
//   alpha_ij,h = softmax of s_ij,h over the edges into i
//   out[i,h]   = sum_j alpha_ij,h v[j,h],  concatenated or averaged over the heads
//
// q, k, v: (N, H, D); scale: (N, H), or undefined: ones. Returns (N, H D), or (N, D) under
// mean_heads. f32 or f64; all have gradients. A node without incoming edges gets zeros. In training
// mode dropout takes one draw of the mode's generator: element edge H + h is alpha of that edge and
// head, self-loops counting from edge E on in order of the nodes.
//
// Kept for backward: the inputs and three numbers a (node, head). Nothing has the size of the edges
// times the features; scores and weights are computed again in backward, and the one thing that
// goes with the edges is a bit each for dropout's mask while a pass runs.
Tensor dot_attention(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& scale, const DotAttentionOptions& options, Mode mode);

struct EdgeAttention {
  Tensor out;
  Tensor edge_sum;  // (N, H, Fe), not averaged over the heads: sum_j alpha_ij,h e_ij
};

// The same where edges have features: qe (N, H, Fe) and e (E, Fe), in the graph's order of edges,
// with Fe >= 1. Scores are factor scale[i,h] (<q[i,h], k[j,h]> + <qe[i,h], e_ij>), and the weighted
// sums of e come out too; loops that options add have no features (zeros). With qe = W_e[h]^T
// q[i,h] and out + W_e[h] edge_sum this is attention to k_j + W_e e_ij and v_j + W_e e_ij (Shi et
// al.: Masked label prediction: unified message passing model for semi-supervised classification,
// IJCAI 2021, equations 3 and 4), which needs nothing of size E H D.
EdgeAttention dot_attention(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& scale, const Tensor& qe, const Tensor& e,
                            const DotAttentionOptions& options, Mode mode);

}  // namespace lipgrad
