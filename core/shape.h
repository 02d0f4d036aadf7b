#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace lipgrad {

// The sizes of a tensor, outermost dimension first; no allocation. Sizes are >= 0, at most
// Shape::max_rank of them; rank 0 is a scalar. A shape whose element count overflows int64, or with
// a negative size, is refused with Error.
class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes);

  int rank() const { return rank_; }
  std::int64_t numel() const { return numel_; }
  std::int64_t operator[](int dim) const { return sizes_[dim]; }
  const std::int64_t* begin() const { return sizes_; }
  const std::int64_t* end() const { return sizes_ + rank_; }

  // Size of a dimension that may be counted from the back (-1 is the last); Error names `op`.
  std::int64_t size(int dim, const char* op = "size") const {
    return sizes_[normalize_dim(dim, op)];
  }
  // Turns a dimension in [-rank, rank) into one in [0, rank); Error names `op`.
  int normalize_dim(int dim, const char* op) const;
  // Products of the sizes before `dim` and from `dim` on.
  std::int64_t leading(int dim) const;
  std::int64_t trailing(int dim) const;

  Shape with(int dim, std::int64_t size) const;
  Shape without(int dim) const;
  Shape inserted(int dim, std::int64_t size) const;

  // "(4, 16)".
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.sizes_[i] != b.sizes_[i]) return false;
    return true;
  }

 private:
  std::int64_t sizes_[max_rank] = {};
  std::int64_t numel_ = 1;
  int rank_ = 0;
};

// NumPy's broadcasting: sizes are aligned at the last dimension and must be equal or 1.
// Error "<op>: shapes (2, 3) and (4) do not broadcast".
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);
// Whether a tensor of shape `from` can be read as one of shape `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

}  // namespace lipgrad
