#include <lipgrad/ops/kernels/loss.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/loss.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

constexpr double inf = std::numeric_limits<double>::infinity();

template <class T, class Label>
void check_cross_entropy(std::int64_t total, std::int64_t cols, double smoothing, bool choose,
                         const std::vector<T>& x, std::int64_t shift = 0) {
  CAPTURE(total);
  CAPTURE(cols);
  CAPTURE(smoothing);
  CAPTURE(choose);
  CAPTURE(shift);
  std::vector<Label> labels(total);
  for (std::int64_t r = 0; r < total; ++r) labels[r] = static_cast<Label>((r * 5 + 1) % cols);
  std::vector<std::int64_t> rows;
  if (choose)
    for (std::int64_t i = 0; i < total + 3; ++i) rows.push_back((i * i + 1) % total);
  const std::int64_t count = choose ? total + 3 : total;
  const std::vector<T> gy{T(-1.7)};
  std::vector<T> lse(count), loss(1), gx(total * cols);
  std::vector<std::int64_t> correct(1);
  const std::int64_t* list = choose ? rows.data() : nullptr;
  cpu::cross_entropy(total, count, cols, x.data(), list, labels.data(), smoothing, lse.data(),
                     loss.data());
  cpu::cross_entropy_backward(total, count, cols, x.data(), list, labels.data(), smoothing,
                              lse.data(), gy.data(), gx.data());
  cpu::count_correct(total, count, cols, x.data(), list, labels.data(), correct.data());

  const DeviceVector<T> dx(x, shift), dg(gy);
  const DeviceVector<Label> dlabels(labels);
  const DeviceVector<std::int64_t> drows(rows);
  DeviceVector<T> dlse(count), dloss(1), dgx(total * cols, shift);
  DeviceVector<std::int64_t> dcorrect(1);
  const std::int64_t* dlist = choose ? drows.read() : nullptr;
  cuda::cross_entropy(total, count, cols, dx.read(), dlist, dlabels.read(), smoothing, dlse.data(),
                      dloss.data());
  cuda::cross_entropy_backward(total, count, cols, dx.read(), dlist, dlabels.read(), smoothing,
                               dlse.data(), dg.read(), dgx.data());
  cuda::count_correct(total, count, cols, dx.read(), dlist, dlabels.read(), dcorrect.data());
  CHECK(difference(dlse.host(), lse) <= tolerance<T>);
  CHECK(difference(dloss.host(), loss) <= tolerance<T>);
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  CHECK(dcorrect.host() == correct);
}

template <class T>
void check_pair(std::int64_t n, std::int64_t shift, bool hard) {
  CAPTURE(n);
  CAPTURE(shift);
  std::vector<T> x = random_values<T>(n, 1, -20, 20), t = random_values<T>(n, 2, 0, 1);
  if (hard) {
    const T odd[] = {T(inf), T(-inf), T(1000), T(-1000), T(0)};
    for (std::int64_t i = 0; i < n; ++i) x[i] = odd[i % 5];
    t[0] = std::numeric_limits<T>::quiet_NaN();
  }
  const std::vector<T> gy{T(0.6)};
  std::vector<T> loss(1), gx(n), gt(n);
  DeviceVector<T> dx(x, shift), dt(t, shift), dloss(1), dgx(n, shift), dgt(n, shift), dg(gy);
  cpu::bce_with_logits(n, x.data(), t.data(), loss.data());
  cuda::bce_with_logits(n, dx.read(), dt.read(), dloss.data());
  CHECK(difference(dloss.host(), loss) <= tolerance<T>);
  cpu::mse(n, x.data(), t.data(), loss.data());
  cuda::mse(n, dx.read(), dt.read(), dloss.data());
  CHECK(difference(dloss.host(), loss) <= tolerance<T>);
  cpu::bce_with_logits_backward(n, x.data(), t.data(), gy.data(), gx.data(), gt.data());
  cuda::bce_with_logits_backward(n, dx.read(), dt.read(), dg.read(), dgx.data(), dgt.data());
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  CHECK(difference(dgt.host(), gt) <= tolerance<T>);
  cpu::mse_backward<T>(n, x.data(), t.data(), gy.data(), gx.data(), nullptr);
  cuda::mse_backward<T>(n, dx.read(), dt.read(), dg.read(), dgx.data(), nullptr);
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  cpu::mse_backward<T>(n, x.data(), t.data(), gy.data(), nullptr, gt.data());
  cuda::mse_backward<T>(n, dx.read(), dt.read(), dg.read(), nullptr, dgt.data());
  CHECK(difference(dgt.host(), gt) <= tolerance<T>);
}

template <class T>
void check_bce_rows(std::int64_t total, std::int64_t cols, bool choose, bool missing,
                    std::int64_t shift) {
  CAPTURE(total);
  CAPTURE(cols);
  CAPTURE(choose);
  CAPTURE(missing);
  const std::int64_t n = total * cols, count = choose ? total + 3 : total;
  const std::vector<T> x = random_values<T>(n, 1, -20, 20), gy{T(0.6)};
  std::vector<T> t = random_values<T>(n, 2, 0, 1);
  if (missing)
    for (std::int64_t i = 1; i < n; i += 3) t[i] = std::numeric_limits<T>::quiet_NaN();
  std::vector<std::int64_t> rows;
  if (choose)
    for (std::int64_t i = 0; i < count; ++i) rows.push_back((i * i + 1) % total);
  const std::int64_t* list = choose ? rows.data() : nullptr;
  std::vector<T> loss(1), gx(n), gt(n);
  std::vector<double> known(1);
  cpu::bce_rows(total, count, cols, x.data(), list, t.data(), missing, known.data(), loss.data());
  cpu::bce_rows_backward(total, count, cols, x.data(), list, t.data(), missing, known.data(),
                         gy.data(), gx.data(), gt.data());
  const DeviceVector<T> dx(x, shift), dt(t, shift), dg(gy);
  const DeviceVector<std::int64_t> drows(rows);
  DeviceVector<T> dloss(1), dgx(n, shift), dgt(n, shift);
  DeviceVector<double> dknown(1);
  const std::int64_t* dlist = choose ? drows.read() : nullptr;
  cuda::bce_rows(total, count, cols, dx.read(), dlist, dt.read(), missing, dknown.data(),
                 dloss.data());
  cuda::bce_rows_backward(total, count, cols, dx.read(), dlist, dt.read(), missing, dknown.data(),
                          dg.read(), dgx.data(), dgt.data());
  CHECK(dknown.host() == known);
  CHECK(difference(dloss.host(), loss) <= tolerance<T>);
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  CHECK(difference(dgt.host(), gt) <= tolerance<T>);
}

template <class T>
void check_soft(std::int64_t total, std::int64_t cols, std::int64_t shift) {
  CAPTURE(total);
  CAPTURE(cols);
  CAPTURE(shift);
  const std::int64_t n = total * cols;
  const std::vector<T> x = random_values<T>(n, 1, -20, 20), t = random_values<T>(n, 2, 0, 1),
                       gy{T(0.6)};
  std::vector<T> lse(total), loss(1), gx(n), gt(n);
  cpu::soft_cross_entropy(total, cols, x.data(), t.data(), lse.data(), loss.data());
  cpu::soft_cross_entropy_backward(total, cols, x.data(), t.data(), lse.data(), gy.data(),
                                   gx.data(), gt.data());
  const DeviceVector<T> dx(x, shift), dt(t, shift), dg(gy);
  DeviceVector<T> dlse(total), dloss(1), dgx(n, shift), dgt(n, shift);
  cuda::soft_cross_entropy(total, cols, dx.read(), dt.read(), dlse.data(), dloss.data());
  CHECK(difference(dlse.host(), lse) <= tolerance<T>);
  CHECK(difference(dloss.host(), loss) <= tolerance<T>);
  cuda::soft_cross_entropy_backward<T>(total, cols, dx.read(), dt.read(), dlse.read(), dg.read(),
                                       dgx.data(), nullptr);
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  cuda::soft_cross_entropy_backward<T>(total, cols, dx.read(), dt.read(), dlse.read(), dg.read(),
                                       nullptr, dgt.data());
  CHECK(difference(dgt.host(), gt) <= tolerance<T>);
}

std::string message_of(const Tensor& x) {
  try {
    x.item();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("loss: cross_entropy, its gradient and count_correct equal the CPU's") {
  if (!test::with_cuda()) return;
  for (const auto& [total, cols] :
       {std::pair{1, 1}, {3, 2}, {140, 7}, {37, 32}, {20, 41}, {9, 256}, {5, 1027}, {2, 5000}}) {
    for (const double smoothing : {0.0, 0.2}) {
      for (const bool choose : {false, true}) {
        const auto x = random_values<float>(total * cols, 3, -30, 30);
        const auto wide = random_values<double>(total * cols, 4, -30, 30);
        check_cross_entropy<float, std::int32_t>(total, cols, smoothing, choose, x, choose);
        check_cross_entropy<double, std::int64_t>(total, cols, smoothing, choose, wide, choose);
      }
    }
  }
  // Partial sums of more blocks than are added up at once.
  const auto many = random_values<float>(70000 * 2, 5);
  check_cross_entropy<float, std::int64_t>(70000, 2, 0.1, false, many);
}

TEST_CASE("loss: cross_entropy of infinities, NaN and ties is the CPU's") {
  if (!test::with_cuda()) return;
  for (const int cols : {6, 70, 1100}) {
    const float nan = std::numeric_limits<float>::quiet_NaN(), top = static_cast<float>(inf);
    for (const float odd : {nan, top, -top, 30.0f}) {
      std::vector<float> x(7 * cols, -2.5f);
      x[1] = odd;
      x[cols + 5] = odd;                                           // not at the label
      std::fill(x.begin() + 2 * cols, x.begin() + 3 * cols, odd);  // a whole row
      x[4 * cols] = x[5 * cols - 1] = odd;                         // a tie
      check_cross_entropy<float, std::int32_t>(7, cols, 0, false, x);
      check_cross_entropy<float, std::int64_t>(7, cols, 0.1, true, x);
    }
  }
}

TEST_CASE("loss: bce_with_logits and mse equal the CPU's") {
  if (!test::with_cuda()) return;
  for (const std::int64_t n : {1, 5, 4096, 4099, 20000}) {
    for (const std::int64_t shift : {0, 1}) {
      check_pair<float>(n, shift, false);
      check_pair<double>(n, shift, false);
    }
  }
  check_pair<float>(50, 0, true);
  check_pair<double>(50, 1, true);
}

TEST_CASE("loss: soft_cross_entropy equals the CPU's") {
  if (!test::with_cuda()) return;
  for (const auto& [total, cols] :
       {std::pair{1, 1}, {3, 2}, {140, 7}, {37, 32}, {20, 41}, {9, 256}, {5, 1027}, {2, 5000}})
    for (const std::int64_t shift : {0, 1}) {
      check_soft<float>(total, cols, shift);
      check_soft<double>(total, cols, shift);
    }
}

TEST_CASE("loss: bce_with_logits of rows and of known targets equals the CPU's") {
  if (!test::with_cuda()) return;
  for (const auto& [total, cols] :
       {std::pair{1, 1}, {3, 2}, {140, 7}, {37, 32}, {20, 41}, {9, 256}, {5, 1027}, {5000, 3}}) {
    for (const bool choose : {false, true}) {
      for (const bool missing : {false, true}) {
        check_bce_rows<float>(total, cols, choose, missing, choose);
        check_bce_rows<double>(total, cols, choose, missing, missing);
      }
    }
  }
  const Tensor x = ones({3, 2}).to(cuda_device()),
               rows = from_values<std::int64_t>({2}, {1, 3}).to(cuda_device());
  const Tensor loss = bce_with_logits(x, x, {.rows = rows});
  CHECK(message_of(loss).find("(position 1)") != std::string::npos);
  CHECK(loss.item() == doctest::Approx(std::log1p(std::exp(-1.0))));
}

TEST_CASE("loss: labels and rows out of range add nothing and are told at item()") {
  if (!test::with_cuda()) return;
  const Tensor host = from_values<double>({3, 2}, {1, 2, 3, 1, 0.5, 0.25});
  const Tensor good = from_values<std::int64_t>({3}, {1, 0, 1});
  const auto row_loss = [&](std::int64_t r) {
    return cross_entropy(host, good, {.rows = from_values<std::int64_t>({1}, {r})}).item();
  };
  const Tensor bad = from_values<std::int64_t>({3}, {1, 2, 1}).to(cuda_device());
  Tape tape;
  const Tensor x = tape.watch(host.to(cuda_device()));
  const Tensor loss = cross_entropy(x, bad);
  const Tensor g = tape.grad(loss, {x})[0];
  CHECK(message_of(loss).find("label of cross_entropy or accuracy (position 1) is not in [0, 2)") !=
        std::string::npos);
  CHECK(loss.item() == doctest::Approx((row_loss(0) + row_loss(2)) / 3));
  const std::vector<double> gradient = g.to(cpu_device).to_vector<double>();
  CHECK(gradient[2] == 0);
  CHECK(gradient[3] == 0);
  CHECK(gradient[4] == doctest::Approx(-gradient[5]));

  const Tensor labels = good.to(cuda_device());
  const Tensor rows = from_values<std::int32_t>({3}, {0, 3, 2}).to(cuda_device());
  const Tensor chosen = cross_entropy(x.detach(), labels, {.rows = rows});
  CHECK(message_of(chosen).find("row chosen for cross_entropy or accuracy (position 1)") !=
        std::string::npos);
  CHECK(chosen.item() == doctest::Approx((row_loss(0) + row_loss(2)) / 3));
  CHECK_THROWS_AS(accuracy(x.detach(), bad), Error);
  CHECK(accuracy(x.detach(), labels) == doctest::Approx(2.0 / 3));
}

TEST_CASE("loss: correct() stays on the device") {
  if (!test::with_cuda()) return;
  const Tensor x = from_values<float>({3, 2}, {0, 0, 1, 3, 5, 4}),
               labels = from_values<std::int32_t>({3}, {0, 0, 0}),
               rows = from_values<std::int32_t>({2}, {0, 2});
  const Tensor hits =
      correct(x.to(cuda_device()), labels.to(cuda_device()), rows.to(cuda_device()));
  CHECK(hits.device() == cuda_device());
  CHECK(hits.dtype() == i64);
  CHECK(hits.item() == 2);
  CHECK(correct(x, labels).item() == 2);
  CHECK(accuracy(x.to(cuda_device()), labels.to(cuda_device()), rows.to(cuda_device())) == 1);
}

}  // namespace lipgrad
