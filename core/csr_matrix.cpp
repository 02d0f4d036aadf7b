#include <lipgrad/core/csr_matrix.h>

#include <limits>
#include <mutex>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/device_copies.h>

namespace lipgrad {

struct CsrPattern::Data {
  std::int64_t rows, cols;
  Tensor offsets, columns;
  std::once_flag once;
  CsrPattern transposed;
  Tensor order;
  // On another device than the CPU: where it was copied from, and of that the copies.
  std::shared_ptr<Data> host;
  DeviceCopies<Data> copies;
};

CsrPattern::CsrPattern(std::int64_t rows, std::int64_t cols, Tensor offsets, Tensor columns) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  LIPGRAD_CHECK(rows >= 0 && cols >= 0 && rows <= most && cols <= most,
                "csr: {} rows and {} columns; each must be from 0 to {}", rows, cols, most);
  LIPGRAD_CHECK(offsets.defined() && offsets.dtype() == i64 && offsets.rank() == 1 &&
                    offsets.numel() == rows + 1,
                "csr: offsets must be i64 of shape ({}), got {}", rows + 1, offsets.str());
  LIPGRAD_CHECK(columns.defined() && columns.dtype() == i32 && columns.rank() == 1,
                "csr: columns must be i32 of rank 1, got {}", columns.str());
  LIPGRAD_CHECK(offsets.device() == columns.device(), "csr: offsets on {}, columns on {}",
                offsets.device(), columns.device());
  if (!offsets.device().is_cpu()) {
    *this =
        CsrPattern(rows, cols, offsets.to(cpu_device), columns.to(cpu_device)).to(offsets.device());
    return;
  }
  const std::int64_t nnz = columns.numel();
  const std::int64_t* offset = offsets.data<std::int64_t>();
  LIPGRAD_CHECK(offset[0] == 0 && offset[rows] == nnz,
                "csr: offsets go from {} to {}, expected 0 to {} (the number of columns)",
                offset[0], offset[rows], nnz);
  for (std::int64_t i = 0; i < rows; ++i)
    LIPGRAD_CHECK(offset[i] <= offset[i + 1], "csr: offsets descend at row {}: {} to {}", i,
                  offset[i], offset[i + 1]);
  const std::int32_t* column = columns.data<std::int32_t>();
  for (std::int64_t k = 0; k < nnz; ++k)
    LIPGRAD_CHECK(column[k] >= 0 && column[k] < cols,
                  "csr: column {} of entry {} is not in [0, {})", column[k], k, cols);
  data_ = std::make_shared<Data>();
  data_->rows = rows;
  data_->cols = cols;
  data_->offsets = offsets.detach();
  data_->columns = columns.detach();
}

std::int64_t CsrPattern::rows() const { return data_ ? data_->rows : 0; }
std::int64_t CsrPattern::cols() const { return data_ ? data_->cols : 0; }
std::int64_t CsrPattern::nnz() const { return data_ ? data_->columns.numel() : 0; }

const Tensor& CsrPattern::offsets() const {
  LIPGRAD_CHECK(data_, "csr: the pattern is undefined");
  return data_->offsets;
}
const Tensor& CsrPattern::columns() const {
  LIPGRAD_CHECK(data_, "csr: the pattern is undefined");
  return data_->columns;
}

const CsrPattern& CsrPattern::transposed() const {
  LIPGRAD_CHECK(data_, "csr: the pattern is undefined");
  std::call_once(data_->once, [this] {
    if (data_->host) {
      CsrPattern host;
      host.data_ = data_->host;
      data_->transposed = host.transposed().to(device());
      data_->order = host.transposed_order().to(device());
      return;
    }
    Tensor offsets = zeros({cols() + 1}, i64), columns = empty({nnz()}, i32),
           order = empty({nnz()}, i64);
    const std::int64_t* from = data_->offsets.data<std::int64_t>();
    const std::int32_t* column = data_->columns.data<std::int32_t>();
    std::int64_t* start = offsets.mutable_data<std::int64_t>();
    std::int32_t* row = columns.mutable_data<std::int32_t>();
    std::int64_t* place = order.mutable_data<std::int64_t>();
    for (std::int64_t k = 0; k < nnz(); ++k) ++start[column[k] + 1];
    for (std::int64_t j = 0; j < cols(); ++j) start[j + 1] += start[j];
    std::vector<std::int64_t> next(start, start + cols());
    for (std::int64_t i = 0; i < rows(); ++i) {
      for (std::int64_t k = from[i]; k < from[i + 1]; ++k) {
        const std::int64_t to = next[column[k]]++;
        row[to] = static_cast<std::int32_t>(i);
        place[to] = k;
      }
    }
    data_->transposed = CsrPattern(cols(), rows(), std::move(offsets), std::move(columns));
    data_->order = std::move(order);
  });
  return data_->transposed;
}

const Tensor& CsrPattern::transposed_order() const {
  transposed();
  return data_->order;
}

CsrPattern CsrPattern::to(Device device) const {
  LIPGRAD_CHECK(data_, "csr: the pattern is undefined");
  if (device == this->device()) return *this;
  CsrPattern result;
  const std::shared_ptr<Data>& host = data_->host ? data_->host : data_;
  if (device.is_cpu()) {
    result.data_ = host;
    return result;
  }
  result.data_ = host->copies.get(device, [&] {
    auto copy = std::make_shared<Data>();
    copy->rows = host->rows;
    copy->cols = host->cols;
    copy->offsets = host->offsets.to(device);
    copy->columns = host->columns.to(device);
    copy->host = host;
    return copy;
  });
  return result;
}

CsrMatrix::CsrMatrix(CsrPattern pattern, Tensor values)
    : pattern_(std::move(pattern)), values_(std::move(values)) {
  LIPGRAD_CHECK(pattern_.defined() && values_.defined() && is_floating(values_.dtype()) &&
                    values_.shape() == Shape{pattern_.nnz()},
                "csr: values must be f32 or f64 of shape ({}), got {}", pattern_.nnz(),
                values_.str());
  LIPGRAD_CHECK(values_.device() == pattern_.device(), "csr: values on {}, the pattern on {}",
                values_.device(), pattern_.device());
}

CsrMatrix CsrMatrix::from_dense(const Tensor& dense) {
  LIPGRAD_CHECK(dense.defined() && dense.rank() == 2, "csr: expects a matrix, got {}", dense.str());
  if (!dense.device().is_cpu()) return from_dense(dense.to(cpu_device)).to(dense.device());
  const std::int64_t rows = dense.size(0), cols = dense.size(1);
  return visit_float("csr", dense.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = dense.data<T>();
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> columns;
    std::vector<T> values;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        if (x[i * cols + j] == 0) continue;
        columns.push_back(static_cast<std::int32_t>(j));
        values.push_back(x[i * cols + j]);
      }
      offsets.push_back(static_cast<std::int64_t>(columns.size()));
    }
    const auto nnz = static_cast<std::int64_t>(columns.size());
    return CsrMatrix(
        CsrPattern(rows, cols, from_vector({rows + 1}, offsets), from_vector({nnz}, columns)),
        from_vector({nnz}, values));
  });
}

Tensor CsrMatrix::to_dense() const {
  if (!device().is_cpu()) return to(cpu_device).to_dense().to(device());
  Tensor dense = zeros({rows(), cols()}, dtype());
  visit_float("csr", dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* x = dense.mutable_data<T>();
    const T* value = values_.data<T>();
    const std::int64_t* offset = pattern_.offsets().data<std::int64_t>();
    const std::int32_t* column = pattern_.columns().data<std::int32_t>();
    for (std::int64_t i = 0; i < rows(); ++i)
      for (std::int64_t k = offset[i]; k < offset[i + 1]; ++k)
        x[i * cols() + column[k]] += value[k];
  });
  return dense;
}

}  // namespace lipgrad
