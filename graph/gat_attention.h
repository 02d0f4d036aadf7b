#pragma once

#include <optional>

#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>
#include <lipgrad/graph/lipschitz_norm.h>

namespace lipgrad {

struct GatAttentionOptions {
  double negative_slope = 0.2;  // of LeakyReLU
  // Every node attends to itself once, whatever self-loops the graph has. No second graph is built.
  bool self_loops = true;
  // Probability that a weight is dropped in training mode.
  double dropout = 0;
  // The mean over the heads instead of their concatenation.
  bool mean_heads = false;
  // LipschitzNorm of the scores, of kind gat; see below.
  std::optional<LipschitzNorm> norm = {};
};

// Graph attention (Velickovic, Cucurull, Casanova, Romero, Lio, Bengio: Graph attention networks,
// ICLR 2018, equations 1 to 6) of H heads with D features:
//
//   e_ij,h     = LeakyReLU((<a_dst[h], z[i,h]> + <a_src[h], z[j,h]>) / norm)  for the edges j -> i
//   alpha_ij,h = softmax of e_ij,h over the edges into i
//   out[i,h]   = sum_j alpha_ij,h z[j,h],  concatenated or averaged over the heads, plus bias
//
// z: (N, H D) or (N, H, D) projected features; a_src, a_dst: (H, D); bias: of the output's width,
// or undefined. Returns (N, H D), or (N, D) under mean_heads. f32 or f64; all four have gradients.
// A node without incoming edges gets the bias alone. In training mode dropout takes one draw of the
// mode's generator: element edge H + h is alpha of that edge and head, self-loops counting from
// edge E on in order of the nodes.
//
// The norm is 1, or with LipschitzNorm of kind gat
//
//   (kappa |a_h| sqrt(|z[i,h]|^2 + max_k |z[k,h]|^2) + eps) / alpha,  a_h = [a_src[h] | a_dst[h]],
//
// the maximum over the sources k of the edges into i, the self-loop's included, or over all nodes
// (scope global); |z[j,h]|, of the edge's source, in place of |z[i,h]| with edge_source; one |a| of
// all heads if joint. No score exceeds alpha / kappa (with edge_source: given self-loops or the
// global scope), and scores stay the same when a or z is scaled; gat_norm.h has the Lipschitz
// constant. Gradients go through the norm unless detach; that of a maximum goes to the node of
// lowest id among those that reach it. Error for options that have no meaning here: query_norm,
// pre_scale, and target_lipschitz, which is for layers.
//
// Kept for backward: z and four numbers a (node, head), six or seven with a norm. Nothing has the
// size of the edges times the features; scores and weights are computed again in backward, and the
// one thing that goes with the edges is a bit each for dropout's mask while a pass runs.
Tensor gat_attention(const Graph& graph, const Tensor& z, const Tensor& a_src, const Tensor& a_dst,
                     const Tensor& bias, const GatAttentionOptions& options, Mode mode);

}  // namespace lipgrad
