#include <lipgrad/graph/kernels/graph_layer_norm.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

template <class T>
void check(std::int64_t rows, std::int64_t cols, std::int64_t shift, bool affine, double offset) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(shift);
  CAPTURE(affine);
  const double eps = 1e-3, error = tolerance<T> * (1 + std::abs(offset));
  const std::int64_t n = rows * cols;
  const std::vector<T> x = random_values<T>(n, 1, offset - 2, offset + 2),
                       weight = random_values<T>(cols, 2), bias = random_values<T>(cols, 3),
                       gy = random_values<T>(n, 4);
  const auto or_null = [&](const T* p) { return affine ? p : nullptr; };
  std::vector<T> y(n), stats(2), gx(n), gweight(cols), gbias(cols);
  cpu::graph_layer_norm(rows, cols, eps, x.data(), or_null(weight.data()), or_null(bias.data()),
                        y.data(), stats.data());
  cpu::graph_layer_norm_backward(rows, cols, x.data(), or_null(weight.data()), stats.data(),
                                 gy.data(), gx.data(), gweight.data(), gbias.data());

  const DeviceVector<T> dx(x, shift), dweight(weight), dbias(bias), dgy(gy, shift);
  const auto forward = [&] {
    DeviceVector<T> to(n, shift), found(2);
    cuda::graph_layer_norm(rows, cols, eps, dx.read(), or_null(dweight.read()),
                           or_null(dbias.read()), to.data(), found.data());
    CHECK(difference(found.host(), stats) <= error);
    return to.host();
  };
  const std::vector<T> got = forward();
  CHECK(difference(got, y) <= error);
  CHECK(same_bits(forward(), got));

  const DeviceVector<T> same_stats(stats);
  DeviceVector<T> dgx(n, shift), dgw(cols), dgb(cols), alone(n, shift);
  cuda::graph_layer_norm_backward(rows, cols, dx.read(), or_null(dweight.read()), same_stats.read(),
                                  dgy.read(), dgx.data(), dgw.data(), dgb.data());
  // Sums of numbers of both signs: relative to what they are made of.
  CHECK(difference(dgx.host(), gx) <= 10 * error);
  CHECK(difference(dgw.host(), gweight) <= 10 * error);
  CHECK(difference(dgb.host(), gbias) <= 10 * error);
  cuda::graph_layer_norm_backward<T>(rows, cols, dx.read(), or_null(dweight.read()),
                                     same_stats.read(), dgy.read(), alone.data(), nullptr, nullptr);
  CHECK(same_bits(alone.host(), dgx.host()));
  DeviceVector<T> only(cols);
  cuda::graph_layer_norm_backward<T>(rows, cols, dx.read(), or_null(dweight.read()),
                                     same_stats.read(), dgy.read(), nullptr, only.data(), nullptr);
  CHECK(same_bits(only.host(), dgw.host()));
}

}  // namespace

TEST_CASE("graph_layer_norm: against the CPU") {
  if (!test::with_cuda()) return;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {5, 7}, {300, 33}, {130, 64}, {9, 1100}, {3000, 3}}) {
    for (const std::int64_t shift : {0, 1}) {
      check<float>(rows, cols, shift, true, 0);
      check<double>(rows, cols, shift, shift == 0, 0);
    }
  }
  check<float>(200, 40, 0, false, 30);
  check<double>(200, 40, 0, true, 1000);
}

}  // namespace lipgrad
