// The ops on features of either kind, apart from features.cpp so that readers of data sets need no
// op.
#include <lipgrad/graph/features.h>
#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/linear.h>

namespace lipgrad {

Tensor linear(const Features& x, const Tensor& weight, const Tensor& bias) {
  return x.is_sparse() ? linear(x.sparse(), weight, bias) : linear(x.dense(), weight, bias);
}

Features dropout(const Features& features, double p, Mode mode) {
  if (!features.is_sparse()) return dropout(features.dense(), p, mode);
  if (!mode.is_train() || p == 0) return features;
  const CsrMatrix& x = features.sparse();
  return x.with_values(dropout(x.values(), p, mode));
}

}  // namespace lipgrad
