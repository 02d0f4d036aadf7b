#pragma once

#include <initializer_list>
#include <span>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Reductions of f32 and f64 tensors over the given dimensions, in any order, counted from the back
// when negative. The result lacks these dimensions, or has them with size 1 if keepdim. Without
// dimensions given, all elements are reduced to a scalar. Blocks and their order depend on the
// shape alone. Errors name the op, the dimensions and the shape.
using Dims = std::span<const int>;

Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, Dims dims, bool keepdim = false);
// Error when there is nothing to average.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, Dims dims, bool keepdim = false);
// sum((x - mean)^2) / (n - correction), n elements each. Error unless n > correction.
Tensor var(const Tensor& x, double correction = 1);
Tensor var(const Tensor& x, Dims dims, bool keepdim = false, double correction = 1);
// The largest element; NaN if there is one. The gradient goes to the first of equal ones. Error
// when there is nothing to choose from.
Tensor max(const Tensor& x);
Tensor max(const Tensor& x, Dims dims, bool keepdim = false);
// log sum exp(x), without overflow; -inf for no elements and where all are -inf (no gradient
// there).
Tensor logsumexp(const Tensor& x);
Tensor logsumexp(const Tensor& x, Dims dims, bool keepdim = false);

// The index of the largest element along one dimension, the lowest of equal ones, as i64 without a
// gradient. A NaN counts as the largest.
Tensor argmax(const Tensor& x, int dim = -1);

// With dimensions in braces: sum(x, {0, 2}).
inline Tensor sum(const Tensor& x, std::initializer_list<int> dims, bool keepdim = false) {
  return sum(x, Dims(dims.begin(), dims.size()), keepdim);
}
inline Tensor mean(const Tensor& x, std::initializer_list<int> dims, bool keepdim = false) {
  return mean(x, Dims(dims.begin(), dims.size()), keepdim);
}
inline Tensor var(const Tensor& x, std::initializer_list<int> dims, bool keepdim = false,
                  double correction = 1) {
  return var(x, Dims(dims.begin(), dims.size()), keepdim, correction);
}
inline Tensor max(const Tensor& x, std::initializer_list<int> dims, bool keepdim = false) {
  return max(x, Dims(dims.begin(), dims.size()), keepdim);
}
inline Tensor logsumexp(const Tensor& x, std::initializer_list<int> dims, bool keepdim = false) {
  return logsumexp(x, Dims(dims.begin(), dims.size()), keepdim);
}

}  // namespace lipgrad
