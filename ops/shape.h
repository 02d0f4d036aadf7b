#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// Rearrangements, of any dtype. A dimension may be counted from the back (-1 is the last). reshape
// and what follows from it, and slices of the first dimension, share storage with their input; the
// others copy.

// The same elements in another shape of as many elements. With sizes in braces one of them may be
// -1 and is worked out: reshape(x, {n, -1}).
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes);
// Dimensions first ... last become one.
Tensor flatten(const Tensor& x, int first = 0, int last = -1);
// A new dimension of size 1 before `dim` (0 to rank), and the removal of one of size 1.
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);

// Dimension i of the result is dimension order[i] of x.
Tensor permute(const Tensor& x, std::span<const int> order);
inline Tensor permute(const Tensor& x, std::initializer_list<int> order) {
  return permute(x, std::span<const int>(order.begin(), order.size()));
}
// Swaps two dimensions.
Tensor transpose(const Tensor& x, int a = -2, int b = -1);

// Repeats x along the dimensions in which it has size 1 or that it lacks in front (NumPy's rules).
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// One after the other along `dim`; the other sizes must be equal.
Tensor concat(std::span<const Tensor> tensors, int dim);
inline Tensor concat(std::initializer_list<Tensor> tensors, int dim) {
  return concat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}
// One after the other along a new dimension `dim`; all shapes must be equal.
Tensor stack(std::span<const Tensor> tensors, int dim);
// Indices begin <= i < end of dimension `dim`; negative ones count from the back.
Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end);
// Consecutive pieces of the given sizes, which must add up to the size of dimension `dim`.
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim);
inline std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                                 int dim) {
  return split(x, std::span<const std::int64_t>(sizes.begin(), sizes.size()), dim);
}

// The elements converted to another dtype; between f32 and f64 with a gradient.
Tensor cast(const Tensor& x, DType dtype);
// The elements on another device, with a gradient, which comes back to the device of x; x itself if
// it is there already.
Tensor transfer(const Tensor& x, Device device);

}  // namespace lipgrad
