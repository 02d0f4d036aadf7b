#include <lipgrad/ops/kernels/loss.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

template <class T, class Label>
void check_cross_entropy(std::int64_t total, std::int64_t cols,
                         const std::vector<std::int64_t>* rows, double smoothing) {
  const std::vector<T> x = random_values<T>(total * cols, 1, -4, 4);
  std::vector<Label> labels(total);
  for (std::int64_t r = 0; r < total; ++r) labels[r] = static_cast<Label>((r * 7 + 3) % cols);
  const std::int64_t count = rows ? static_cast<std::int64_t>(rows->size()) : total;
  std::vector<T> lse(count), gx(total * cols, T(9));
  T loss = 0;
  const T gy = T(0.75);
  const std::int64_t* chosen = rows ? rows->data() : nullptr;
  cpu::cross_entropy(total, count, cols, x.data(), chosen, labels.data(), smoothing, lse.data(),
                     &loss);
  cpu::cross_entropy_backward(total, count, cols, x.data(), chosen, labels.data(), smoothing,
                              lse.data(), &gy, gx.data());
  double expected = 0, worst = 0;
  std::vector<double> g(total * cols);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t r = rows ? (*rows)[i] : i;
    double sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) sum += std::exp(double(x[r * cols + c]));
    for (std::int64_t c = 0; c < cols; ++c) {
      const double target = (c == labels[r] ? 1 - smoothing : 0) + smoothing / cols;
      expected += target * (std::log(sum) - x[r * cols + c]) / count;
      g[r * cols + c] += gy / count * (std::exp(double(x[r * cols + c])) / sum - target);
    }
  }
  for (std::int64_t i = 0; i < total * cols; ++i) worst = std::max(worst, std::abs(gx[i] - g[i]));
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  CHECK(std::abs(loss - expected) <= tolerance * std::max(1.0, expected));
  CHECK(worst <= tolerance);
}

TEST_CASE("cross_entropy kernels: all rows, chosen rows, repeated rows, smoothing") {
  const std::vector<std::int64_t> some = {5, 0, 299, 5, 17, 5};
  for (double smoothing : {0.0, 0.1}) {
    check_cross_entropy<float, std::int32_t>(300, 7, nullptr, smoothing);
    check_cross_entropy<float, std::int64_t>(300, 40, &some, smoothing);
    check_cross_entropy<double, std::int32_t>(300, 9, &some, smoothing);
    check_cross_entropy<double, std::int64_t>(1, 1000, nullptr, smoothing);
  }
}

TEST_CASE("cross_entropy kernels: large and infinite logits") {
  const float low = -std::numeric_limits<float>::infinity();
  const float x[] = {1000, 0, -1000, low, 0, 0};
  const std::int64_t labels[] = {0, 1};
  float lse[2], loss, gx[6], one = 1;
  cpu::cross_entropy<float, std::int64_t>(2, 2, 3, x, nullptr, labels, 0, lse, &loss);
  CHECK(loss == doctest::Approx(std::log(2.0) / 2));
  cpu::cross_entropy_backward<float, std::int64_t>(2, 2, 3, x, nullptr, labels, 0, lse, &one, gx);
  const double expected[] = {0, 0, 0, 0, -0.25, 0.25};
  for (int i = 0; i < 6; ++i) CHECK(gx[i] == doctest::Approx(expected[i]));
}

template <class T>
void check_pairs(std::int64_t n) {
  const std::vector<T> x = random_values<T>(n, 1, -4, 4), t = random_values<T>(n, 2, 0, 1);
  std::vector<T> gx(n), gt(n);
  const T gy = T(-1.5);
  T loss = 0;
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  cpu::bce_with_logits(n, x.data(), t.data(), &loss);
  cpu::bce_with_logits_backward(n, x.data(), t.data(), &gy, gx.data(), gt.data());
  double sum = 0, worst = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double p = 1 / (1 + std::exp(-double(x[i])));
    sum -= t[i] * std::log(p) + (1 - t[i]) * std::log(1 - p);
    worst = std::max(worst, std::abs(gx[i] - gy * (p - t[i]) / n));
    worst = std::max<double>(worst, std::abs(gt[i] + gy * x[i] / n));
  }
  CHECK(std::abs(loss - sum / n) <= 2 * tolerance * (sum / n));
  CHECK(worst <= tolerance);
  cpu::mse(n, x.data(), t.data(), &loss);
  cpu::mse_backward<T>(n, x.data(), t.data(), &gy, gx.data(), nullptr);
  sum = worst = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = double(x[i]) - t[i];
    sum += d * d;
    worst = std::max(worst, std::abs(gx[i] - gy * 2 * d / n));
  }
  CHECK(std::abs(loss - sum / n) <= tolerance * (sum / n));
  CHECK(worst <= tolerance);
  cpu::mse_backward<T>(n, x.data(), t.data(), &gy, nullptr, gt.data());
  for (std::int64_t i = 0; i < n; ++i)
    worst = std::max(worst, std::abs(double(gx[i]) + double(gt[i])));
  CHECK(worst <= tolerance);
}

TEST_CASE("bce_with_logits and mse kernels") {
  for (std::int64_t n : {1, 7, 8, 5000, 100003}) {
    check_pairs<float>(n);
    check_pairs<double>(n);
  }
  const float x[] = {1000, -1000, 1000}, t[] = {1, 0, 0};
  float loss;
  cpu::bce_with_logits(3, x, t, &loss);
  CHECK(loss == doctest::Approx(1000.0 / 3));
}

TEST_CASE("loss kernels: the number of threads changes no bit") {
  CHECK(same_on_any_threads([] {
    const std::vector<float> x = random_values<float>(200000, 1),
                             t = random_values<float>(200000, 2);
    std::vector<std::int64_t> labels(20000);
    std::vector<float> out(3), lse(20000);
    cpu::bce_with_logits(200000, x.data(), t.data(), &out[0]);
    cpu::mse(200000, x.data(), t.data(), &out[1]);
    cpu::cross_entropy<float, std::int64_t>(20000, 20000, 10, x.data(), nullptr, labels.data(), 0.1,
                                            lse.data(), &out[2]);
    return out;
  }));
}

}  // namespace
}  // namespace lipgrad
