#include <lipgrad/ops/kernels/norm.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

template <class T>
void check_norm(std::int64_t rows, std::int64_t cols, bool centred, bool affine) {
  CAPTURE(rows);
  CAPTURE(cols);
  const double eps = 1e-2;
  const std::vector<T> x = random_values<T>(rows * cols, 1, -1, 3),
                       gy = random_values<T>(rows * cols, 2);
  const std::vector<T> w = random_values<T>(cols, 3), b = random_values<T>(cols, 4);
  const T* weight = affine ? w.data() : nullptr;
  std::vector<T> y(rows * cols), mean(rows), rstd(rows), gx(rows * cols), gw(cols), gb(cols);
  if (centred) {
    cpu::layer_norm(rows, cols, eps, x.data(), weight, affine ? b.data() : nullptr, y.data(),
                    mean.data(), rstd.data());
  } else {
    cpu::rms_norm(rows, cols, eps, x.data(), weight, y.data(), rstd.data());
  }
  cpu::norm_backward(rows, cols, x.data(), weight, centred ? mean.data() : nullptr, rstd.data(),
                     gy.data(), gx.data(), affine ? gw.data() : nullptr,
                     affine && centred ? gb.data() : nullptr);
  const double tolerance = sizeof(T) == 4 ? 4e-6 : 1e-13;
  double worst = 0;
  std::vector<double> sum_w(cols), sum_b(cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    double m = 0, v = 0, h = 0, dot = 0;
    for (std::int64_t c = 0; c < cols; ++c) m += x[r * cols + c] / double(cols);
    if (!centred) m = 0;
    for (std::int64_t c = 0; c < cols; ++c) v += std::pow(x[r * cols + c] - m, 2) / cols;
    const double scale = 1 / std::sqrt(v + eps);
    const auto hat = [&](std::int64_t c) { return (x[r * cols + c] - m) * scale; };
    const auto g = [&](std::int64_t c) { return gy[r * cols + c] * (affine ? double(w[c]) : 1.0); };
    for (std::int64_t c = 0; c < cols; ++c) {
      h += g(c) / cols;
      dot += g(c) * hat(c) / cols;
      sum_w[c] += gy[r * cols + c] * hat(c);
      sum_b[c] += gy[r * cols + c];
    }
    for (std::int64_t c = 0; c < cols; ++c) {
      const double expected = hat(c) * (affine ? w[c] : T(1)) + (affine && centred ? b[c] : T(0));
      worst = std::max(worst, std::abs(y[r * cols + c] - expected));
      worst = std::max(
          worst, std::abs(gx[r * cols + c] - scale * (g(c) - (centred ? h : 0) - hat(c) * dot)));
    }
  }
  CHECK(worst <= tolerance);
  if (!affine) return;
  for (std::int64_t c = 0; c < cols; ++c) {
    const double size = std::sqrt(double(rows)) + 1;
    worst = std::max(worst, std::abs(gw[c] - sum_w[c]) / size);
    if (centred) worst = std::max(worst, std::abs(gb[c] - sum_b[c]) / size);
  }
  CHECK(worst <= tolerance);
}

TEST_CASE("layer_norm and rms_norm kernels") {
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 5}, {1, 1}, {4, 8}, {7, 13}, {3000, 33}, {5, 1000}}) {
    for (bool centred : {true, false}) {
      for (bool affine : {true, false}) {
        check_norm<float>(rows, cols, centred, affine);
        check_norm<double>(rows, cols, centred, affine);
      }
    }
  }
}

template <class T>
void check_l2(std::int64_t outer, std::int64_t n, std::int64_t inner, double eps) {
  const std::int64_t count = outer * n * inner;
  const std::vector<T> x = random_values<T>(count, 1), gy = random_values<T>(count, 2);
  std::vector<T> y(count), norm(outer * inner), gx(count);
  cpu::l2_normalize(outer, n, inner, eps, x.data(), y.data(), norm.data());
  cpu::l2_normalize_backward(outer, n, inner, eps, y.data(), norm.data(), gy.data(), gx.data());
  double worst = 0;
  for (std::int64_t j = 0; j < outer * inner; ++j) {
    const auto at = [&](std::int64_t i) { return (j / inner * n + i) * inner + j % inner; };
    double squares = 0, dot = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += double(x[at(i)]) * x[at(i)];
    const double length = std::sqrt(squares), divisor = std::max(length, eps);
    for (std::int64_t i = 0; i < n; ++i) dot += x[at(i)] / divisor * gy[at(i)];
    if (length < eps) dot = 0;
    worst = std::max(worst, std::abs(norm[j] - length));
    for (std::int64_t i = 0; i < n; ++i) {
      worst = std::max(worst, std::abs(y[at(i)] - x[at(i)] / divisor));
      worst =
          std::max(worst, std::abs(gx[at(i)] - (gy[at(i)] - x[at(i)] / divisor * dot) / divisor));
    }
  }
  CHECK(worst <= (sizeof(T) == 4 ? 4e-6 : 1e-14));
}

TEST_CASE("l2_normalize kernels") {
  for (double eps : {1e-12, 3.0}) {
    for (const auto& s : std::vector<std::vector<std::int64_t>>{
             {1, 1, 1}, {300, 7, 1}, {3, 100, 1}, {4, 5, 3}, {1, 9, 40}, {0, 3, 1}}) {
      check_l2<float>(s[0], s[1], s[2], eps);
      check_l2<double>(s[0], s[1], s[2], eps);
    }
  }
  const float zero[2] = {0, 0}, gy[2] = {1, 2};
  float y[2], norm, gx[2];
  cpu::l2_normalize(1, 2, 1, 1e-12, zero, y, &norm);
  cpu::l2_normalize_backward(1, 2, 1, 1e-12, y, &norm, gy, gx);
  CHECK(y[1] == 0);
  CHECK(gx[1] == doctest::Approx(2e12));
}

TEST_CASE("norm kernels: the number of threads changes no bit") {
  CHECK(same_on_any_threads([] {
    const std::int64_t rows = 5000, cols = 40;
    const std::vector<float> x = random_values<float>(rows * cols, 1),
                             w = random_values<float>(cols, 2);
    std::vector<float> y(rows * cols), mean(rows), rstd(rows), g(2 * cols);
    cpu::layer_norm<float>(rows, cols, 1e-5, x.data(), w.data(), nullptr, y.data(), mean.data(),
                           rstd.data());
    cpu::norm_backward<float>(rows, cols, x.data(), w.data(), mean.data(), rstd.data(), y.data(),
                              y.data(), g.data(), g.data() + cols);
    y.insert(y.end(), g.begin(), g.end());
    return y;
  }));
}

}  // namespace
}  // namespace lipgrad
