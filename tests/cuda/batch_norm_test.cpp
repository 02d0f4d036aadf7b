#include <lipgrad/ops/kernels/batch_norm.h>

#include <limits>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

// shift: elements behind an aligned address; offset: added to all of x.
template <class T>
void check(std::int64_t rows, std::int64_t cols, std::int64_t shift, double offset) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(shift);
  CAPTURE(offset);
  const std::int64_t n = rows * cols;
  const double eps = 1e-2, error = tolerance<T> * (1 + std::abs(offset));
  const std::vector<T> x = random_values<T>(n, 1, offset - 2, offset + 2),
                       gy = random_values<T>(n, 2), a = random_values<T>(cols, 3, 0.8, 1.2),
                       w = random_values<T>(cols, 4), b = random_values<T>(cols, 5);
  const DeviceVector<T> dx(x, shift), dgy(gy, shift), da(a), dw(w), db(b);

  std::vector<T> moments(2 * cols);
  cpu::column_moments(rows, cols, x.data(), moments.data());
  DeviceVector<T> dmoments(2 * cols), again(2 * cols);
  cuda::column_moments(rows, cols, dx.read(), dmoments.data());
  cuda::column_moments(rows, cols, dx.read(), again.data());
  CHECK(same_bits(again.host(), dmoments.host()));
  // Squares about a mean that is rounded to T.
  CHECK(difference(dmoments.host(), moments) <= error);
  const DeviceVector<T> given(moments);

  for (const bool scaled : {false, true}) {
    CAPTURE(scaled);
    const ColumnNorm<T> by{scaled ? a.data() : nullptr, w.data(), scaled ? b.data() : nullptr},
        on_device{scaled ? da.read() : nullptr, dw.read(), scaled ? db.read() : nullptr};
    std::vector<T> y(n);
    cpu::column_norm(rows, cols, eps, x.data(), moments.data(), by, y.data());
    DeviceVector<T> dy(n, shift);
    cuda::column_norm(rows, cols, eps, dx.read(), given.read(), on_device, dy.data());
    CHECK(difference(dy.host(), y) <= error);

    for (const bool constant : {false, true}) {
      if (constant && scaled) continue;
      CAPTURE(constant);
      std::vector<T> gx(n), ga(cols), gw(cols), gb(cols);
      cpu::column_norm_backward(rows, cols, eps, constant, x.data(), moments.data(), by, gy.data(),
                                gx.data(), {scaled ? ga.data() : nullptr, gw.data(), gb.data()});
      DeviceVector<T> dgx(n, shift), dga(cols), dgw(cols), dgb(cols), only(n, shift);
      cuda::column_norm_backward(rows, cols, eps, constant, dx.read(), given.read(), on_device,
                                 dgy.read(), dgx.data(),
                                 {scaled ? dga.data() : nullptr, dgw.data(), dgb.data()});
      CHECK(difference(dgx.host(), gx) <= error);
      if (scaled) CHECK(difference(dga.host(), ga) <= error);
      CHECK(difference(dgw.host(), gw) <= error);
      CHECK(difference(dgb.host(), gb) <= error);
      // The gradient of x alone.
      cuda::column_norm_backward(rows, cols, eps, constant, dx.read(), given.read(), on_device,
                                 dgy.read(), only.data(), {nullptr, nullptr, nullptr});
      CHECK(same_bits(only.host(), dgx.host()));
    }
  }

  std::vector<T> mean = b, variance = a;
  DeviceVector<T> dmean(b), dvariance(a);
  cpu::update_moments(cols, 7, 0.3, moments.data(), mean.data(), variance.data());
  cuda::update_moments(cols, 7, 0.3, given.read(), dmean.data(), dvariance.data());
  CHECK(difference(dmean.host(), mean) <= tolerance<T>);
  CHECK(difference(dvariance.host(), variance) <= tolerance<T>);
}

}  // namespace

TEST_CASE("norms of columns, against the CPU") {
  if (!test::with_cuda()) return;
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {5, 7}, {300, 33}, {130, 64}, {70, 257}, {9, 1100}, {2000, 3}}) {
    for (const std::int64_t shift : {0, 1}) {
      check<float>(rows, cols, shift, 0);
      check<double>(rows, cols, shift, 0);
    }
  }
  check<float>(200, 40, 0, 30);
  check<double>(200, 40, 0, 1000);
}

TEST_CASE("norms of columns: a NaN stays in its column") {
  if (!test::with_cuda()) return;
  std::vector<float> x = random_values<float>(70 * 5, 1);
  x[33 * 5 + 2] = std::numeric_limits<float>::quiet_NaN();
  const DeviceVector<float> dx(x);
  DeviceVector<float> moments(10), y(70 * 5);
  cuda::column_moments<float>(70, 5, dx.read(), moments.data());
  cuda::column_norm<float>(70, 5, 1e-5, dx.read(), moments.read(), {nullptr, nullptr, nullptr},
                           y.data());
  const std::vector<float> result = y.host();
  for (int i = 0; i < 70 * 5; ++i) CHECK(std::isnan(result[i]) == (i % 5 == 2));
}

}  // namespace lipgrad
