#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

struct CrossEntropyOptions {
  // i64 (R): the rows that count, in any order, a repeated one as often as it is there; undefined:
  // all.
  Tensor rows = {};
  // The target is (1 - s) on the label plus s / C on every class. From 0 to 1.
  double label_smoothing = 0;
};

// The mean over the chosen rows of -sum_c target_c log softmax(logits)_c: a scalar. logits (N, C),
// f32 or f64; labels (N), i32 or i64, each chosen one in [0, C). Error when no row is chosen, or
// naming the first bad row or label.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels,
                     const CrossEntropyOptions& options = {});

// The mean of -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), computed without overflow: a scalar.
// targets: as logits, values from 0 to 1, may have a gradient. Error when there are no elements.
Tensor bce_with_logits(const Tensor& logits, const Tensor& targets);

// The mean of (x - target)^2: a scalar. Both of the same shape, both may have a gradient. Error
// when there are no elements.
Tensor mse(const Tensor& x, const Tensor& target);

// The part of the chosen rows (undefined: all) whose largest logit is that of the label, the first
// one of several equal ones. Not differentiable. Errors as for cross_entropy.
double accuracy(const Tensor& logits, const Tensor& labels, const Tensor& rows = {});

}  // namespace lipgrad
