#pragma once

// Helpers of the tests that call CUDA kernels on raw arrays.

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <lipgrad/core/cuda_status.h>
#include <lipgrad/core/kernel.h>
#include <lipgrad/core/tensor.h>

#include "ops/kernel_test.h"

namespace lipgrad::test {

// Whether kernels can run here; makes the device the current one.
inline bool with_cuda() {
  if (!cuda_status().problem.empty()) {
    MESSAGE("skipped: ", cuda_status().problem);
    return false;
  }
  cuda::use_device(0);
  return true;
}

// A precision of matrix products, while it is in scope.
class Precision {
 public:
  explicit Precision(MatmulPrecision p) { set_matmul_precision(p); }
  ~Precision() { set_matmul_precision(before_); }
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  MatmulPrecision before_ = matmul_precision();
};

// An array in device memory, `shift` elements behind an aligned address.
template <class T>
class DeviceVector {
 public:
  explicit DeviceVector(std::int64_t n, std::int64_t shift = 0)
      : DeviceVector(std::vector<T>(n, T(77)), shift) {}
  DeviceVector(const std::vector<T>& values, std::int64_t shift = 0) {
    std::vector<T> all(shift, T(77));
    all.insert(all.end(), values.begin(), values.end());
    const auto n = static_cast<std::int64_t>(values.size());
    whole_ = from_vector({n + shift}, all).to(cuda_device());
    tensor_ = whole_.alias({n}, shift);
  }

  T* data() { return tensor_.mutable_data<T>(); }
  const T* read() const { return tensor_.data<T>(); }
  std::vector<T> host() const { return tensor_.to(cpu_device).to_vector<T>(); }

 private:
  Tensor whole_, tensor_;
};

// The largest difference, relative to the largest expected element that is finite; infinite where
// one is NaN or infinite and the other is not the same.
template <class T>
double difference(const std::vector<T>& got, const std::vector<T>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(expected[i])) {
      if (got[i] != expected[i]) return INFINITY;
      continue;
    }
    size = std::max(size, std::abs(double(expected[i])));
    worst = std::max(worst, std::abs(double(got[i]) - double(expected[i])));
  }
  return worst == 0 ? 0 : worst / size;
}
// What a device may differ from the CPU.
template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-10;

}  // namespace lipgrad::test
