#pragma once

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include <lipgrad/core/tape.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad::test {

// The largest difference of two f64 tensors, relative to the largest element expected.
inline double distance(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.shape() == expected.shape());
  double worst = 0, size = 0;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    size = std::max(size, std::abs(expected.data<double>()[i]));
    worst = std::max(worst, std::abs(got.data<double>()[i] - expected.data<double>()[i]));
  }
  return worst / size;
}

// The Jacobian of y = f(x) in f64, one row for each element of y.
template <class F>
Tensor jacobian(const Tensor& at, F&& f) {
  Tape tape;
  const Tensor x = tape.watch(at);
  const Tensor y = f(x);
  Tensor rows = zeros({y.numel(), at.numel()}, f64);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    Tensor cotangent = zeros(y.shape(), f64);
    cotangent.mutable_data<double>()[i] = 1;
    const Tensor row = tape.grad(y, {x}, cotangent, {.retain = true})[0];
    std::copy_n(row.data<double>(), at.numel(), rows.mutable_data<double>() + i * at.numel());
  }
  return rows;
}

}  // namespace lipgrad::test
