#pragma once

#include <cstdint>
#include <memory>

#include <lipgrad/core/tensor.h>

namespace lipgrad {

// The places of the nonzeros of a sparse matrix, by rows; immutable and shared. Entries of a row
// are in any order and may repeat a column. Row offsets are int64, columns int32.
class CsrPattern {
 public:
  CsrPattern() = default;
  // offsets: i64 (rows + 1), from 0 to nnz, not descending; columns: i32 (nnz), each in [0, cols);
  // both on one device. Error names the first entry that breaks this.
  CsrPattern(std::int64_t rows, std::int64_t cols, Tensor offsets, Tensor columns);

  bool defined() const { return static_cast<bool>(data_); }
  std::int64_t rows() const;
  std::int64_t cols() const;
  std::int64_t nnz() const;
  const Tensor& offsets() const;
  const Tensor& columns() const;

  // The pattern of the transposed matrix, entries of a row in ascending order of their place here,
  // and for each of its entries that place (i64). Computed at the first use, once, and shared.
  const CsrPattern& transposed() const;
  const Tensor& transposed_order() const;

  Device device() const { return data_ ? offsets().device() : cpu_device; }
  // The same pattern with its tensors on another device: a copy is made once and shared as long as
  // somebody holds it. What is computed of it (transposed()) is computed on the CPU, once.
  CsrPattern to(Device device) const;

  friend bool operator==(const CsrPattern& a, const CsrPattern& b) { return a.data_ == b.data_; }

 private:
  struct Data;
  std::shared_ptr<Data> data_;
};

// A sparse matrix: a pattern and one f32 or f64 value for each of its entries. The values may be a
// value of a tape: products give them a gradient.
class CsrMatrix {
 public:
  CsrMatrix() = default;
  // values: (nnz), on the device of the pattern.
  CsrMatrix(CsrPattern pattern, Tensor values);
  // From a dense (rows, cols) matrix, whose zeros are left out.
  static CsrMatrix from_dense(const Tensor& dense);

  bool defined() const { return pattern_.defined(); }
  const CsrPattern& pattern() const { return pattern_; }
  const Tensor& values() const { return values_; }
  std::int64_t rows() const { return pattern_.rows(); }
  std::int64_t cols() const { return pattern_.cols(); }
  std::int64_t nnz() const { return pattern_.nnz(); }
  DType dtype() const { return values_.dtype(); }

  // The same pattern with other values.
  CsrMatrix with_values(Tensor values) const { return CsrMatrix(pattern_, std::move(values)); }
  CsrMatrix to(DType dtype) const { return with_values(values_.to(dtype)); }
  Device device() const { return pattern_.device(); }
  // Error while a tape records the values.
  CsrMatrix to(Device device) const { return CsrMatrix(pattern_.to(device), values_.to(device)); }
  // (rows, cols); entries of one place are added up.
  Tensor to_dense() const;

 private:
  CsrPattern pattern_;
  Tensor values_;
};

}  // namespace lipgrad
