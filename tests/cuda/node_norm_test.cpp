#include <lipgrad/graph/kernels/node_norm.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

template <class T>
void check(std::int64_t rows, std::int64_t cols, double power, std::int64_t shift) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(shift);
  const std::int64_t n = rows * cols;
  const double eps = 1e-3;
  const std::vector<T> x = random_values<T>(n, 1), gy = random_values<T>(n, 2);
  std::vector<T> y(n), mean(rows), scale(rows), gx(n);
  cpu::node_norm(rows, cols, eps, power, x.data(), y.data(), mean.data(), scale.data());
  cpu::node_norm_backward(rows, cols, power, x.data(), mean.data(), scale.data(), gy.data(),
                          gx.data());
  const DeviceVector<T> dx(x, shift), dgy(gy, shift);
  DeviceVector<T> dy(n, shift), dmean(rows), dscale(rows), dgx(n, shift), again(n);
  cuda::node_norm(rows, cols, eps, power, dx.read(), dy.data(), dmean.data(), dscale.data());
  cuda::node_norm_backward(rows, cols, power, dx.read(), dmean.read(), dscale.read(), dgy.read(),
                           dgx.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);
  CHECK(difference(dscale.host(), scale) <= tolerance<T>);
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  cuda::node_norm(rows, cols, eps, power, dx.read(), again.data(), dmean.data(), dscale.data());
  CHECK(same_bits(again.host(), dy.host()));
}

}  // namespace

TEST_CASE("node_norm and its gradient, against the CPU") {
  if (!test::with_cuda()) return;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {5, 7}, {300, 33}, {9, 128}, {11, 1023}, {3, 1025}, {2, 3000}, {0, 4}})
    for (const std::int64_t shift : {0, 1}) {
      check<float>(rows, cols, 0.5, shift);
      check<double>(rows, cols, 0.5, shift);
      check<double>(rows, cols, 1, shift);
    }
}

}  // namespace lipgrad
