#include <lipgrad/ops/kernels/residual.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

template <class T>
void check_residual(bool damped, std::int64_t rows, std::int64_t cols, bool scalar,
                    std::int64_t shift) {
  CAPTURE(damped);
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(scalar);
  CAPTURE(shift);
  const std::int64_t n = rows * cols, factors = scalar ? 1 : cols;
  const std::vector<T> x = random_values<T>(n, 1), f = random_values<T>(n, 2, 0, 3),
                       alpha = random_values<T>(factors, 3), gy = random_values<T>(n, 4, 0, 2);
  std::vector<T> y(n), gx(n), gf(n), galpha(factors);
  const DeviceVector<T> dx(x, shift), df(f, shift), dalpha(alpha, shift), dgy(gy, shift);
  DeviceVector<T> dy(n, shift), dgx(n, shift), dgf(n, shift), dgalpha(factors, shift);
  cpu::residual(damped, rows, cols, scalar, x.data(), f.data(), alpha.data(), y.data());
  cuda::residual(damped, rows, cols, scalar, dx.read(), df.read(), dalpha.read(), dy.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);
  for (int wanted : {7, 1, 2, 3, 4}) {
    CAPTURE(wanted);
    const bool want_x = wanted & 1, want_f = wanted & 2, want_alpha = wanted & 4;
    cpu::residual_backward(damped, rows, cols, scalar, want_alpha && damped ? x.data() : nullptr,
                           want_alpha ? f.data() : nullptr, alpha.data(), gy.data(),
                           want_x ? gx.data() : nullptr, want_f ? gf.data() : nullptr,
                           want_alpha ? galpha.data() : nullptr);
    cuda::residual_backward(damped, rows, cols, scalar, want_alpha && damped ? dx.read() : nullptr,
                            want_alpha ? df.read() : nullptr, dalpha.read(), dgy.read(),
                            want_x ? dgx.data() : nullptr, want_f ? dgf.data() : nullptr,
                            want_alpha ? dgalpha.data() : nullptr);
    if (want_x) CHECK(difference(dgx.host(), gx) <= tolerance<T>);
    if (want_f) CHECK(difference(dgf.host(), gf) <= tolerance<T>);
    if (want_alpha) CHECK(difference(dgalpha.host(), galpha) <= tolerance<T>);
  }
}

}  // namespace

TEST_CASE("residual: results and gradients equal the CPU's") {
  if (!test::with_cuda()) return;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 1},   {5, 7},   {33, 32},
                                                         {700, 3}, {90, 64}, {2, 2100}};
  for (const bool damped : {false, true}) {
    for (const bool scalar : {false, true}) {
      for (const auto& [rows, cols] : sizes) {
        check_residual<float>(damped, rows, cols, scalar, 0);
        check_residual<double>(damped, rows, cols, scalar, 1);
      }
    }
  }
}

TEST_CASE("residual: no rows give gradients of zero") {
  if (!test::with_cuda()) return;
  const DeviceVector<float> alpha(3);
  for (const bool scalar : {false, true}) {
    DeviceVector<float> galpha(3);
    const float* none = nullptr;
    float* nothing = nullptr;
    cuda::residual(true, 0, 3, scalar, none, none, alpha.read(), nothing);
    cuda::residual_backward(true, 0, 3, scalar, none, none, alpha.read(), none, nothing, nothing,
                            galpha.data());
    CHECK(galpha.host()[0] == 0);
    CHECK(galpha.host()[2] == (scalar ? 77 : 0));
  }
}

}  // namespace lipgrad
