#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Losses: means over their terms, as f32 or f64 scalars.

struct CrossEntropyOptions {
  // The rows of the logits that count (i32 or i64; one named k times counts k times); undefined:
  // all.
  Tensor rows = {};
  // Weight s of the uniform distribution in the target, in [0, 1] (Szegedy et al.,
  // arXiv:1512.00567).
  double label_smoothing = 0;
};

// -sum_c q_c log softmax(logits)_c with q = (1 - s) onehot(label) + s / C, averaged over the rows.
// logits: (N, C); labels: (N) i32 or i64, those of the rows that count in [0, C). Error when no row
// counts, and for a row or label out of range: at once on the CPU; on a CUDA device such a row adds
// nothing, and the next synchronisation, such as item(), tells.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     const CrossEntropyOptions& options = {});

// -sum_c targets_c log softmax(logits)_c, averaged over the rows; both (N, C). The targets of a row
// are a distribution, as labels that were smoothed or mixed are, but need not be one. Both have
// gradients. Error when there is no row or no class.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets);

struct BceOptions {
  // The rows of the logits, then of shape (N, C), that count (i32 or i64; one named k times counts
  // k times); undefined: all.
  Tensor rows = {};
  // Whether a target of NaN is one that is not known: such terms add nothing, and the mean is over
  // the others (0 when there is none).
  bool skip_missing = false;
};

// -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), averaged over all elements or those that the
// options leave; targets of the logits' shape, in [0, 1]. A row out of range: as for cross_entropy.
Tensor bce_with_logits(const Tensor& logits, const Tensor& targets, const BceOptions& options = {});

// (x - target)^2, averaged over all elements; equal shapes.
Tensor mse(const Tensor& x, const Tensor& target);

// The number of rows (all, or those given) whose largest logit, the first of equal ones, stands at
// their label, as an i64 scalar on the device of the logits: nothing waits for it there. Arguments
// as for cross_entropy.
Tensor correct(const Tensor& logits, const Tensor& labels, const Tensor& rows = {});

// The share of rows (all, or those given) that are correct(). No gradient. Error when there is no
// row.
double accuracy(const Tensor& logits, const Tensor& labels, const Tensor& rows = {});

}  // namespace lipgrad
