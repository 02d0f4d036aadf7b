#include <lipgrad/graph/features.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {

Features::Features(Tensor dense) : dense_(std::move(dense)) {
  LIPGRAD_CHECK(dense_.defined() && dense_.rank() == 2 && is_floating(dense_.dtype()),
                "features: expects f32 or f64 of shape (nodes, features), got {}", dense_.str());
}

Features::Features(CsrMatrix sparse) : sparse_(std::move(sparse)) {
  LIPGRAD_CHECK(sparse_.defined(), "features: the sparse matrix is undefined");
}

const Tensor& Features::dense() const {
  LIPGRAD_CHECK(dense_.defined(), "features: dense ones are wanted, these are {}",
                is_sparse() ? "sparse" : "undefined");
  return dense_;
}

const CsrMatrix& Features::sparse() const {
  LIPGRAD_CHECK(sparse_.defined(), "features: sparse ones are wanted, these are {}",
                dense_.defined() ? "dense" : "undefined");
  return sparse_;
}

Features Features::to(DType dtype) const {
  LIPGRAD_CHECK(is_floating(dtype), "features: cannot have elements of {}; use f32 or f64", dtype);
  if (is_sparse()) return Features(sparse_.to(dtype));
  return Features(dense().to(dtype));
}

Features Features::to(Device device) const {
  if (is_sparse()) return Features(sparse_.to(device));
  return Features(dense().to(device));
}

Features row_normalize(const Features& features) {
  if (!features.device().is_cpu())
    return row_normalize(features.to(cpu_device)).to(features.device());
  const bool sparse = features.is_sparse();
  const Tensor& from = sparse ? features.sparse().values() : features.dense();
  Tensor to = empty_like(from);
  const std::int64_t cols = features.cols();
  const std::int64_t* offset =
      sparse ? features.sparse().pattern().offsets().data<std::int64_t>() : nullptr;
  visit_float("row_normalize", from.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = from.data<T>();
    T* y = to.mutable_data<T>();
    parallel_for(features.rows(), 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = sparse ? offset[i] : i * cols;
        const std::int64_t last = sparse ? offset[i + 1] : first + cols;
        double sum = 0;
        for (std::int64_t k = first; k < last; ++k) sum += std::abs(static_cast<double>(x[k]));
        for (std::int64_t k = first; k < last; ++k)
          y[k] = sum > 0 ? static_cast<T>(static_cast<double>(x[k]) / sum) : x[k];
      }
    });
  });
  if (sparse) return Features(features.sparse().with_values(std::move(to)));
  return Features(std::move(to));
}

Features zero_rows(const Features& features, const Tensor& nodes) {
  if (!features.device().is_cpu())
    return zero_rows(features.to(cpu_device), nodes).to(features.device());
  LIPGRAD_CHECK(nodes.defined() && nodes.dtype() == i64 && nodes.rank() == 1,
                "zero_rows: node ids must be i64 of rank 1, got {}", nodes.str());
  const bool sparse = features.is_sparse();
  Tensor to = (sparse ? features.sparse().values() : features.dense()).clone();
  const Tensor local = nodes.to(cpu_device);
  const std::int64_t *id = local.data<std::int64_t>(),
                     *offset = sparse ? features.sparse().pattern().offsets().data<std::int64_t>()
                                      : nullptr;
  visit_float("zero_rows", to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* y = to.mutable_data<T>();
    for (std::int64_t k = 0; k < nodes.numel(); ++k) {
      LIPGRAD_CHECK(id[k] >= 0 && id[k] < features.rows(), "zero_rows: node {} of {}", id[k],
                    features.rows());
      const std::int64_t first = sparse ? offset[id[k]] : id[k] * features.cols();
      const std::int64_t last = sparse ? offset[id[k] + 1] : first + features.cols();
      std::fill(y + first, y + last, T(0));
    }
  });
  if (sparse) return Features(features.sparse().with_values(std::move(to)));
  return Features(std::move(to));
}

}  // namespace lipgrad
