#include <lipgrad/graph/kernels/pair_norm.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

// offset: added to all of x, so that its mean is far from zero.
template <class T>
void check(std::int64_t rows, std::int64_t cols, std::int64_t shift, double offset) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(shift);
  CAPTURE(offset);
  const double scale = 0.7, eps = 1e-3;
  const std::int64_t n = rows * cols;
  std::vector<T> x = random_values<T>(n, 1, offset - 2, offset + 2);
  const std::vector<T> gy = random_values<T>(n, 2);
  const DeviceVector<T> dx(x, shift), dgy(gy, shift);
  // What is subtracted cancels: the error is that of x itself.
  const double error = tolerance<T> * (1 + std::abs(offset));

  const auto compare = [&](std::int64_t roots, bool of_x, auto cpu_forward, auto cuda_forward,
                           auto cpu_backward, auto cuda_backward) {
    CAPTURE(roots);
    std::vector<T> y(n), root(roots), gx(n);
    cpu_forward(rows, cols, scale, eps, x.data(), y.data(), root.data());
    DeviceVector<T> dy(n, shift), droot(roots);
    cuda_forward(rows, cols, scale, eps, dx.read(), dy.data(), droot.data());
    CHECK(difference(dy.host(), y) <= error);
    CHECK(difference(droot.host(), root) <= error);
    DeviceVector<T> again(n, shift);
    cuda_forward(rows, cols, scale, eps, dx.read(), again.data(), droot.data());
    CHECK(same_bits(again.host(), dy.host()));

    const std::vector<T>& saved = of_x ? x : y;
    cpu_backward(rows, cols, scale, saved.data(), root.data(), gy.data(), gx.data());
    const DeviceVector<T> dsaved(saved, shift), same_root(root);
    DeviceVector<T> dgx(n, shift);
    cuda_backward(rows, cols, scale, dsaved.read(), same_root.read(), dgy.read(), dgx.data());
    CHECK(difference(dgx.host(), gx) <= error);
  };
  compare(1, false, cpu::pair_norm<T>, cuda::pair_norm<T>, cpu::pair_norm_backward<T>,
          cuda::pair_norm_backward<T>);
  compare(rows, false, cpu::pair_norm_si<T>, cuda::pair_norm_si<T>, cpu::pair_norm_si_backward<T>,
          cuda::pair_norm_si_backward<T>);
  compare(rows, true, cpu::pair_norm_scs<T>, cuda::pair_norm_scs<T>, cpu::pair_norm_scs_backward<T>,
          cuda::pair_norm_scs_backward<T>);
}

}  // namespace

TEST_CASE("pair_norm: three forms and their gradients, against the CPU") {
  if (!test::with_cuda()) return;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                                                     {5, 7},
                                                                                     {300, 33},
                                                                                     {130, 64},
                                                                                     {70, 257},
                                                                                     {40, 300},
                                                                                     {9, 1100},
                                                                                     {3, 2500},
                                                                                     {2000, 3},
                                                                                     {0, 4}}) {
    for (const std::int64_t shift : {0, 1}) {
      check<float>(rows, cols, shift, 0);
      check<double>(rows, cols, shift, 0);
    }
  }
  check<float>(200, 40, 0, 30);
  check<double>(200, 40, 0, 1000);
}

}  // namespace lipgrad
