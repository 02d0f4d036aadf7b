#pragma once

#include <cstdint>
#include <optional>

#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// LipschitzNorm (Dasoulas, Scaman, Virmaux: Lipschitz normalization for self-attention layers with
// application to graph neural networks, ICML 2021): attention scores are divided, before the
// softmax, by norms of what they are computed from, so that their size does not depend on that of
// the features, and the layer has a finite Lipschitz constant.

// Kinds of scores, and what each is divided by, for the edges j -> i:
enum class ScoreKind : std::uint8_t {
  // <a_dst, z_i> + <a_src, z_j>, by |a| sqrt(|z_i|^2 + max_k |z_k|^2), a = [a_src | a_dst]
  gat,
  // <q_i, k_j>, by max(u v, u w, v w): u of the queries, v = max |k_j|, w = max |v_j|
  dot_uvw,
  // <q_i, k_j> for queries that are parameters, by u v
  linear_uv,
  // <a, LeakyReLU(l_i + r_j)>, by |a| (|l_i| + max_k |r_k|). Not in the paper: an extension
  gatv2,
  // scores s_ij of any kind with a Lipschitz constant L, by max(sqrt(sum_i max_j s_ij^2),
  // L max_j |x_j|)
  generic,
};

// Where a maximum over keys, values or sources is taken.
enum class NormScope : std::uint8_t {
  neighbourhood,  // over the sources of the edges into the node
  global,         // over all nodes of the graph
};

// u, the norm of the queries of dot_uvw and linear_uv.
enum class QueryNorm : std::uint8_t {
  global,         // sqrt(sum_i |q_i|^2)
  per_node,       // |q_i|
  edge_expanded,  // sqrt(sum_i deg(i) |q_i|^2), deg the number of edges into i
};

struct LipschitzNorm {
  // Unset: neighbourhood for gat and gatv2, global for the others, as in the paper.
  std::optional<NormScope> scope = {};
  QueryNorm query_norm = QueryNorm::global;
  // One |a| (gat, gatv2), or one u (dot_uvw, linear_uv), over all heads together.
  bool joint = false;
  // gat: |z_j|, of the edge's own source, in place of |z_i|: what the published code computes.
  bool edge_source = false;
  // Another factor of the denominator. Unset: 4 for gat, 1 for the others.
  std::optional<double> kappa = {};
  // Whether the scores of dot products keep their 1 / sqrt(D).
  bool pre_scale = false;
  double alpha = 1;    // factor of the normalised scores
  double eps = 1e-12;  // added to the denominator
  // Gradients take the denominators for constants.
  bool detach = false;
  // The layer's output is multiplied by target / (certificate() times the norm of the projections),
  // so that its Lipschitz constant is at most this. Needs a certificate.
  std::optional<double> target_lipschitz = {};

  // What the authors' code of January 2022 computes, without its fault of indexing in several
  // heads: gat with the source's norm and one |a| over all heads; dot products with the
  // edge-expanded u, v and w of neighbourhoods, and 1 / sqrt(D) kept.
  static LipschitzNorm reference_code_2022(ScoreKind kind);
};

// |x| of the vectors along the last dimension, x(..., D) -> (...), in f32 or f64. The gradient at a
// vector of zeros is 0.
Tensor row_norms(const Tensor& x);

// The scale (N, H) of dot_attention() that makes its scores those of dot_uvw: alpha tau / (kappa
// max{u v, u w, v w} + eps) with the norms u of q, v of k and w of v, all (N, H, D), and tau = 1 /
// sqrt(D) under pre_scale, else 1. self_loops: whether every node is a source of itself besides.
// Where edges have features that are added to keys and values, edge_bound (H), an upper bound on
// the norms of what is added, is added to v and w; undefined: zeros. No score exceeds alpha tau /
// kappa; scores stay the same when q, k and v are multiplied by one t > 0. Gradients go through all
// norms unless norm.detach; equal branches of the maximum share it.
Tensor lipschitz_scale(const Graph& graph, const Tensor& q, const Tensor& k, const Tensor& v,
                       const LipschitzNorm& norm, bool self_loops, const Tensor& edge_bound = {});

// The same for queries that are parameters, kind linear_uv: alpha tau / (kappa u v + eps).
Tensor lipschitz_scale_linear(const Graph& graph, const Tensor& q, const Tensor& k,
                              const LipschitzNorm& norm, bool self_loops);

// Kind generic: scores (E, H) of edges, computed from x (N, D) or (N, H, D) by a function with the
// Lipschitz constant `lipschitz` (from the Frobenius norm of x to sqrt(sum_i max_j s_ij^2), for
// each head), times alpha / (kappa max{sqrt(sum_i max_j s_ij^2), lipschitz max_j |x_j|} + eps):
// maxima over the whole graph, whatever norm.scope. Then edge_softmax() and aggregate(). No score
// exceeds alpha / kappa.
Tensor lipschitz_scores(const Graph& graph, const Tensor& scores, const Tensor& x, double lipschitz,
                        const LipschitzNorm& norm);

// A bound on the Lipschitz constant (of Frobenius norms) of the map from (q, k, v) to the output of
// attention on this graph with scores of this kind: of all heads together, whatever their number;
// of x to the output for linear_uv, where queries are fixed and x are keys and values, and for
// generic; of z for gat, of (l, r) for gatv2. With beta = alpha tau / kappa, N(i) the sources of i
// and
//
//   L_V = sqrt(max_j sum_{i: j in N(i)} min(1, e^(2 beta) / |N(i)|))
//
// it is, by the variance bound |do_i| <= |sum_j S_ij dv_j| + max_j |v_j| max_j |ds_ij|,
//
//   dot_uvw    L_V + 2 beta, with v and w of neighbourhoods L_V + 2 sqrt2 beta; with u per node
//              and v, w of neighbourhoods L_V + 2 sqrt(M) beta, M the largest number of
//              neighbourhoods that a node is in (v and w global: of all nodes)
//   linear_uv  L_V + sqrt2 beta, with u per node times sqrt(M) as above
//   generic    L_V + 2 beta, if the constant given there is right
//
// and for gat and gatv2 that of gat_certificate(). None is known for edge-expanded or joint u
// (dot_uvw, linear_uv) and edge_source. features: D, for pre_scale. None of these constants is 1:
// only target_lipschitz makes a layer 1-Lipschitz.
std::optional<double> certificate(const Graph& graph, ScoreKind kind, const LipschitzNorm& norm,
                                  bool self_loops, std::int64_t features = 1);

}  // namespace lipgrad
