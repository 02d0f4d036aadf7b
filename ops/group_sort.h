#pragma once

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Each pair of neighbours along the last dimension in descending order: y[..., 2i] is the larger of
// x[..., 2i] and x[..., 2i + 1], y[..., 2i + 1] the smaller; a pair that is equal or holds a NaN
// stays as it is. An activation that permutes: it keeps the l2 norms of values and gradients, and
// its Lipschitz constant is 1 (GroupSort with groups of two, or MaxMin: Anil, Lucas, Grosse,
// Sorting out Lipschitz function approximation, ICML 2019, section 4). x: (..., C), f32 or f64.
// Error unless C is even.
Tensor group_sort(const Tensor& x);

}  // namespace lipgrad
