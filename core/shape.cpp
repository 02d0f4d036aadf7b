#include <lipgrad/core/shape.h>

#include <algorithm>

#include <lipgrad/core/check.h>

namespace lipgrad {

Shape::Shape(std::span<const std::int64_t> sizes) {
  LIPGRAD_CHECK(sizes.size() <= max_rank, "shape: {} dimensions, at most {} are supported",
                sizes.size(), max_rank);
  for (std::int64_t size : sizes) {
    LIPGRAD_CHECK(size >= 0, "shape: negative size {} in dimension {}", size, rank_);
    sizes_[rank_++] = size;
  }
  // A zero anywhere makes the count zero, yet the other sizes must still multiply without overflow:
  // kernels compute partial products.
  std::int64_t product = 1;
  for (std::int64_t size : sizes) {
    LIPGRAD_CHECK(!__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product),
                  "shape: {} has more elements than fit in 64 bits", str());
  }
  numel_ = std::find(begin(), end(), 0) != end() ? 0 : product;
}

int Shape::normalize_dim(int dim, const char* op) const {
  LIPGRAD_CHECK(dim >= -rank_ && dim < rank_, "{}: dim {} out of range for {}", op, dim, str());
  return dim < 0 ? dim + rank_ : dim;
}

std::int64_t Shape::leading(int dim) const {
  std::int64_t product = 1;
  for (int i = 0; i < dim; ++i) product *= sizes_[i];
  return product;
}

std::int64_t Shape::trailing(int dim) const {
  std::int64_t product = 1;
  for (int i = dim; i < rank_; ++i) product *= sizes_[i];
  return product;
}

Shape Shape::with(int dim, std::int64_t size) const {
  Shape copy = *this;
  copy.sizes_[dim] = size;
  return Shape(std::span<const std::int64_t>(copy.sizes_, rank_));
}

Shape Shape::without(int dim) const {
  std::int64_t sizes[max_rank];
  int n = 0;
  for (int i = 0; i < rank_; ++i)
    if (i != dim) sizes[n++] = sizes_[i];
  return Shape(std::span<const std::int64_t>(sizes, n));
}

Shape Shape::inserted(int dim, std::int64_t size) const {
  std::int64_t sizes[max_rank + 1];
  int n = 0;
  for (int i = 0; i < rank_; ++i) {
    if (i == dim) sizes[n++] = size;
    sizes[n++] = sizes_[i];
  }
  if (dim == rank_) sizes[n++] = size;
  return Shape(std::span<const std::int64_t>(sizes, n));
}

std::string Shape::str() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(sizes_[i]);
  }
  return text + ")";
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  std::int64_t sizes[Shape::max_rank];
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 1; i <= rank; ++i) {
    const std::int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    LIPGRAD_CHECK(x == y || x == 1 || y == 1, "{}: shapes {} and {} do not broadcast", op, a, b);
    sizes[rank - i] = x == 1 ? y : x;
  }
  return Shape(std::span<const std::int64_t>(sizes, rank));
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int i = 1; i <= from.rank(); ++i) {
    const std::int64_t size = from[from.rank() - i];
    if (size != 1 && size != to[to.rank() - i]) return false;
  }
  return true;
}

}  // namespace lipgrad
