#pragma once

#include <optional>

#include <lipgrad/core/tensor.h>
#include <lipgrad/graph/graph.h>

namespace lipgrad {

// Two readings of "softmax(Z) / |Z|_2", Z the scores of attention and |Z|_2 their spectral norm,
// under which LipschitzNorm is sometimes summarised. Neither is LipschitzNorm (lipschitz_norm.h),
// and neither makes attention Lipschitz, whence they have no certificate: they are here to be
// compared with. With values V and Z = Q K^T for free Q, K and V,
//
//   inside the softmax, softmax(Z / |Z|_2) V: the Jacobian grows as 1 / t when Q and K shrink by t
//   outside, softmax(Z) V / |Z|_2: it grows as 1 / t^3, rows of weights sum to 1 / |Z|_2, and
//   large inputs are contracted to nothing
//
// Z is one dense matrix (m, n), or the scores of edges (E, H), for each head the sparse matrix (N,
// N) with the entry of row i and column j for the edge j -> i (repeated edges add up). Gradients go
// through the norm: of a largest singular value that repeats, those of one pair of its vectors.
// Errors as of spectral_norm_of() and edge_spectral_norms().
struct SpectralScoreNorm {
  double eps = 1e-12;  // added to the norm

  // Z / (|Z|_2 + eps).
  Tensor operator()(const Tensor& scores) const;
  Tensor operator()(const Graph& graph, const Tensor& scores) const;
  std::optional<double> certificate() const { return {}; }
};

struct SpectralOutputNorm {
  double eps = 1e-12;  // added to the norm

  // out / (|Z|_2 + eps), out = softmax(Z) V: (m, D), of edges (N, H, D).
  Tensor operator()(const Tensor& scores, const Tensor& out) const;
  Tensor operator()(const Graph& graph, const Tensor& scores, const Tensor& out) const;
  std::optional<double> certificate() const { return {}; }
};

// (H): the largest singular value of each head's sparse matrix of scores (E, H), in f32 or f64. By
// the power method in f64 on the CPU, at most 3000 steps: where the second singular value is close
// to the first, the value is good to about 1e-7 and its gradient is that of a mixture of vectors of
// both.
Tensor edge_spectral_norms(const Graph& graph, const Tensor& scores);

}  // namespace lipgrad
