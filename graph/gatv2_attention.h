#pragma once

#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// Features of edges that enter the scores. All undefined: there are none.
struct EdgeFeatures {
  Tensor value;   // (E, F): row k belongs to edge k of the graph
  Tensor weight;  // (H D, F): its product with an edge's features is added to both nodes' rows
  Tensor loop;    // (N, F), of the loops that self_loops adds; undefined: zeros
};

// Graph attention with scores of a network of two layers (Brody, Alon, Yahav: How attentive are
// graph attention networks?, ICLR 2022, equation 7) of H heads with D features:
//
//   e_ij,h     = <a[h], LeakyReLU(left[i,h] + right[j,h] + W_h edge_ij)> / norm   for edges j -> i
//   alpha_ij,h = softmax of e_ij,h over the edges into i
//   out[i,h]   = sum_j alpha_ij,h right[j,h],  concatenated or averaged over the heads, plus bias
//
// left, right: (N, H D) or (N, H, D), projected features; a: (H, D); bias: of the output's width,
// or undefined. Returns (N, H D), or (N, D) under mean_heads. f32 or f64; all inputs have
// gradients. Options, self-loops, nodes without edges and the draw of dropout as in gat_attention.
//
// The norm is 1, or with LipschitzNorm of kind gatv2 (an extension: the paper has no such scores)
//
//   (kappa |a_h| (|left[i,h]| + max_k |right[k,h]|) + eps) / alpha
//
// the maximum over the sources k of the edges into i, the self-loop's included, or over all nodes
// (scope global). Without features of edges no score exceeds alpha / kappa, and scores stay the
// same when a, or left and right together, are scaled; gat_norm.h has the Lipschitz constant.
// Gradients go through the norm unless detach. Error for options that have no meaning here:
// edge_source, query_norm, pre_scale, and target_lipschitz, which is for layers.
//
// Kept for backward: left, right and two numbers a (node, head), seven with a norm. Nothing has the
// size of the edges times the features of nodes; W edge_ij is computed anew for every edge.
Tensor gatv2_attention(const Graph& graph, const Tensor& left, const Tensor& right, const Tensor& a,
                       const Tensor& bias, const GatAttentionOptions& options, Mode mode,
                       const EdgeFeatures& edges = {});

}  // namespace lipgrad
