#pragma once

#include <optional>

#include <lipgrad/graph/graph.h>
#include <lipgrad/graph/lipschitz_norm.h>

namespace lipgrad {

// What graph attention with scores of a vector (of kinds gat and gatv2) makes of LipschitzNorm's
// options: factors of the denominators after alpha moved into them.
struct VectorScoreNorm {
  bool global = false, joint = false, edge_source = false, detach = false;
  double kappa = 4, eps = 1e-12;
};

// Error in the name of `op` where an option is out of range or has no meaning for the kind, which
// is gat or gatv2; the message says what is possible.
VectorScoreNorm vector_score_norm(const char* op, ScoreKind kind, const LipschitzNorm& norm);

// An upper bound of the Lipschitz constant (l2 norms of all elements) of graph attention with
// normalised scores and without edge features, for any number of heads, in evaluation mode: for the
// kind gat as a function of z, for gatv2 of (l, r) together. With b = alpha / kappa, n_i the number
// of edges into node i (with its loop), m_i how often one source occurs among them at most, and M
// the largest number of closed neighbourhoods that a node is in:
//
//   sqrt(M) (min(1, e^b max_i sqrt(m_i / n_i)) + c b) [+ b sqrt(N) for the global scope]
//   c for the neighbourhood's norms: 2 (gat), 2 sqrt(2) (gatv2); for global ones: 1 + sqrt(1/2)
//   (gat), sqrt(5) (gatv2)
//
// From the change of the output by weights being at most max_j |value_j| max_j |ds_ij|; the node of
// the largest norm has a say in all scores when norms are global. Assumes LeakyReLU's slope to be
// at most 1. Error for edge_source of neighbourhoods without self-loops, where there is no bound,
// and for other kinds.
double gat_certificate(const Graph& graph, bool self_loops, ScoreKind kind,
                       const LipschitzNorm& norm);

}  // namespace lipgrad
