#include <lipgrad/ops/kernels/gru_cell.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

template <class T>
void check(std::int64_t rows, std::int64_t cols, std::int64_t shift) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(shift);
  const std::int64_t n = rows * cols;
  const std::vector<T> x = random_values<T>(3 * n, 1), hidden = random_values<T>(3 * n, 2),
                       h = random_values<T>(n, 3), gy = random_values<T>(n, 4);
  std::vector<T> y(n), gx(3 * n), ghidden(3 * n), gh(n);
  cpu::gru_gates(rows, cols, x.data(), hidden.data(), h.data(), y.data());
  cpu::gru_gates_backward(rows, cols, x.data(), hidden.data(), h.data(), gy.data(), gx.data(),
                          ghidden.data(), gh.data());
  const DeviceVector<T> dx(x, shift), dhidden(hidden, shift), dh(h, shift), dgy(gy, shift);
  DeviceVector<T> dy(n, shift), dgx(3 * n, shift), dghidden(3 * n, shift), dgh(n, shift),
      only(3 * n, shift);
  cuda::gru_gates(rows, cols, dx.read(), dhidden.read(), dh.read(), dy.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);
  cuda::gru_gates_backward(rows, cols, dx.read(), dhidden.read(), dh.read(), dgy.read(), dgx.data(),
                           dghidden.data(), dgh.data());
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  CHECK(difference(dghidden.host(), ghidden) <= tolerance<T>);
  CHECK(difference(dgh.host(), gh) <= tolerance<T>);
  cuda::gru_gates_backward<T>(rows, cols, dx.read(), dhidden.read(), dh.read(), dgy.read(), nullptr,
                              only.data(), nullptr);
  CHECK(same_bits(only.host(), dghidden.host()));
}

}  // namespace

TEST_CASE("gru_gates and its gradients, against the CPU") {
  if (!test::with_cuda()) return;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {5, 7}, {33, 8}, {300, 33}, {9, 128}, {2, 1000}, {0, 4}})
    for (const std::int64_t shift : {0, 1}) {
      check<float>(rows, cols, shift);
      check<double>(rows, cols, shift);
    }
}

}  // namespace lipgrad
