#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// PairNorm (Zhao, Akoglu, "PairNorm: Tackling Oversmoothing in GNNs", ICLR 2020, arXiv:1909.12223):
// keeps node features apart from one another, however deep the network. For x(N, D), mean the mean
// of its rows:
enum class PairNormKind : std::uint8_t {
  pn,     // scale (x_i - mean) / sqrt(eps + the mean over i of |x_i - mean|^2)
  pn_si,  // "scale individually": scale (x_i - mean) / sqrt(eps + |x_i - mean|^2)
  // "scale and centre simultaneously": scale x_i / sqrt(eps + |x_i|^2) - mean. The mean is that of
  // x, so rows are not centred: as the authors' code has it.
  pn_scs,
};

struct PairNormOptions {
  PairNormKind kind = PairNormKind::pn;
  double scale = 1;
  // Inside the root, as in the authors' code. PyTorch Geometric's differs: 1e-5, and with
  // scale_individually outside of the root (it has no pn_scs).
  double eps = 1e-6;
};

// The mean is over all rows: of one graph. f32 or f64. Error unless x is a matrix and scale and eps
// are positive and finite. No rows give no rows.
Tensor pair_norm(const Tensor& x, const PairNormOptions& options = {});

}  // namespace lipgrad
