#pragma once

#include <cstdint>

#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// What the scores of graph attention are divided by before LeakyReLU, so that their size no longer
// depends on that of the features (Dasoulas, Scaman, Virmaux: Lipschitz normalization for
// self-attention layers with application to graph neural networks, ICML 2021).
enum class AttentionNorm : std::uint8_t {
  none,
  // LipschitzNorm: the score of j -> i, head h, is divided by
  //   kappa |a_h| sqrt(|z[i,h]|^2 + max_k |z[k,h]|^2) + eps,   a_h = [a_src[h] | a_dst[h]],
  // the maximum over the sources k of the edges into i, the self-loop's included. With self-loops
  // no score exceeds 1 / kappa, and scores stay the same when a or z is scaled. The map from z to
  // the output then has a Lipschitz constant (l2 norm of all elements) of at most
  //   sqrt(M) max_i (e^(1 / kappa) / sqrt(n_i) + 2 / kappa),
  // n_i the size of node i's neighbourhood with itself, M the largest number of neighbourhoods that
  // a node is in (no parallel edges): it does not grow with z, as that of plain attention does.
  lipschitz,
  // What the authors' code of 2022 computes, as a control: |z[j,h]|^2, of the edge's source, for
  // |z[i,h]|^2, and one |a| over all heads; without its fault of indexing in several heads.
  lipschitz_reference,
};

struct GatAttentionOptions {
  double negative_slope = 0.2;  // of LeakyReLU
  // Every node attends to itself once, whatever self-loops the graph has. No second graph is built.
  bool self_loops = true;
  // Probability that a weight is dropped in training mode.
  double dropout = 0;
  // The mean over the heads instead of their concatenation.
  bool mean_heads = false;
  AttentionNorm norm = AttentionNorm::none;
  double kappa = 4;    // of the norm
  double eps = 1e-12;  // of the norm
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
// The norm is AttentionNorm's, 1 by default. Gradients go through it; that of a maximum goes to the
// node of lowest id among those that reach it. Error unless kappa > 0 and eps >= 0.
//
// Kept for backward: z and four numbers a (node, head), six or seven with a norm. Nothing has the
// size of the edges times the features; scores and weights are computed again in backward, and the
// one thing that goes with the edges is a bit each for dropout's mask while a pass runs.
Tensor gat_attention(const Graph& graph, const Tensor& z, const Tensor& a_src, const Tensor& a_dst,
                     const Tensor& bias, const GatAttentionOptions& options, Mode mode);

}  // namespace lipgrad
