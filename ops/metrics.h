#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Scores of predictions beside accuracy() (ops/loss.h). They are computed on the CPU in double;
// tensors on other devices are copied. No gradients.
//
// `rows` names the rows that count (i32 or i64); undefined: all. Errors name what does not fit.

// The area under the ROC curve: the probability that a positive is scored above a negative, ties
// counting one half. As sklearn.metrics.roc_auc_score.
//   scores (N), or (N, 2) whose columns are logits of two classes, and labels (N), 1 for positives
//     and 0 for negatives;
//   scores (N, T) and labels (N, T): the mean over those of the T tasks that have both positives
//     and negatives, as OGB's evaluator.
// Labels are integers or floating; those that are negative or NaN are not known and left out. NaN
// when a score that counts is NaN. Error when no task has both positives and negatives.
double roc_auc(const Tensor& scores, const Tensor& labels, const Tensor& rows = {});

enum class F1Average : std::uint8_t { micro, macro };

// F1 = 2 TP / (2 TP + FP + FN): of all counts added up (micro), or its mean over classes (macro).
// As sklearn.metrics.f1_score.
//   logits (N, C) and labels (N) in [0, C): the prediction is the largest logit, the first of equal
//     ones. Micro is then the accuracy; macro is over the classes that are labels or predictions;
//   logits (N, T) and labels (N, T), 1, 0, or negative or NaN for not known: what has a positive
//     logit is predicted. Macro is over the T tasks, with 0 for those without positives and
//     predictions.
// Error when nothing counts.
double f1(const Tensor& logits, const Tensor& labels, F1Average average, const Tensor& rows = {});

}  // namespace lipgrad
