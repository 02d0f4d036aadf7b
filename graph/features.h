#pragma once

#include <cstdint>

#include <lipgrad/core/csr_matrix.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Node features, N x F: a dense tensor or a sparse matrix. Bag-of-words features stay sparse, and
// the first layer multiplies them sparse.
class Features {
 public:
  Features() = default;
  // dense: f32 or f64 of shape (N, F).
  Features(Tensor dense);
  Features(CsrMatrix sparse);

  bool defined() const { return dense_.defined() || sparse_.defined(); }
  bool is_sparse() const { return sparse_.defined(); }
  std::int64_t rows() const { return is_sparse() ? sparse_.rows() : dense_.size(0); }
  std::int64_t cols() const { return is_sparse() ? sparse_.cols() : dense_.size(1); }
  DType dtype() const { return is_sparse() ? sparse_.dtype() : dense_.dtype(); }

  // Error when the features are of the other kind.
  const Tensor& dense() const;
  const CsrMatrix& sparse() const;
  // (N, F), whichever the kind.
  Tensor to_dense() const { return is_sparse() ? sparse_.to_dense() : dense(); }
  // The same kind with elements of another floating dtype.
  Features to(DType dtype) const;
  // On another device.
  Device device() const { return is_sparse() ? sparse_.device() : dense_.device(); }
  Features to(Device device) const;

 private:
  Tensor dense_;
  CsrMatrix sparse_;
};

// Divides each row by the sum of its absolute values; rows of zeros stay. For features that are not
// negative this is the row normalisation of Kipf and Welling's GCN. No gradient is recorded.
Features row_normalize(const Features& features);

// The features with those of some nodes set to zero. nodes: i64, of rank 1, ids in [0, N),
// else an error. No gradient is recorded.
Features zero_rows(const Features& features, const Tensor& nodes);

// x weight^T + bias for weight (out, F) and bias (out), undefined for none: linear() of either kind
// (ops/linear.h). Returns (N, out).
Tensor linear(const Features& x, const Tensor& weight, const Tensor& bias = {});

// Dropout as for tensors (ops/dropout.h); of sparse features the stored values are dropped, which
// is the same distribution, as zeros stay zeros.
Features dropout(const Features& features, double p, Mode mode);

}  // namespace lipgrad
