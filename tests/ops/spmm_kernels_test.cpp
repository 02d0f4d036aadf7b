#include <lipgrad/ops/kernels/spmm.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

struct Csr {
  std::int64_t rows, cols;
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> columns{};
  std::int64_t nnz() const { return offsets.back(); }
};

// Rows of very different lengths, some empty, columns repeated.
Csr random_csr(std::int64_t rows, std::int64_t cols, std::int64_t most) {
  Csr a{};
  a.rows = rows;
  a.cols = cols;
  std::mt19937 rng(3);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::int64_t length = cols == 0 ? 0 : std::int64_t(rng() % (most + 1));
    if (i % 5 == 2) length = 0;
    if (i == 1 && cols > 0) length *= 40;
    for (std::int64_t k = 0; k < length; ++k) a.columns.push_back(std::int32_t(rng() % cols));
    a.offsets.push_back(std::int64_t(a.columns.size()));
  }
  return a;
}

template <class T>
void check_spmm(std::int64_t rows, std::int64_t cols, std::int64_t features, bool weighted,
                bool ordered, std::int64_t heads = 1) {
  CAPTURE(rows);
  CAPTURE(features);
  CAPTURE(heads);
  const std::int64_t width = heads * features;
  const Csr a = random_csr(rows, cols, 9);
  const std::int64_t ldx = width + 3, ldy = width + 2;
  const auto x = random_values<T>(cols * ldx + 1, 1),
             values = random_values<T>(a.nnz() * heads + 1, 2);
  std::vector<std::int64_t> order(a.nnz());
  for (std::int64_t e = 0; e < a.nnz(); ++e) order[e] = a.nnz() - 1 - e;
  const auto run = [&] {
    std::vector<T> y(rows * ldy + 1, T(77));
    cpu::spmm<T>(rows, cols, a.nnz(), heads, features, a.offsets.data(), a.columns.data(),
                 ordered ? order.data() : nullptr, weighted ? values.data() : nullptr, x.data(),
                 ldx, y.data(), ldy);
    return y;
  };
  CHECK(same_on_any_threads(run));
  const auto y = run();
  double worst = 0;
  bool padding_kept = true;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      double sum = 0, magnitude = 1;
      for (std::int64_t e = a.offsets[i]; e < a.offsets[i + 1]; ++e) {
        const std::int64_t at = (ordered ? order[e] : e) * heads + j / features;
        const double term = (weighted ? double(values[at]) : 1.0) * x[a.columns[e] * ldx + j];
        sum += term;
        magnitude += std::abs(term);
      }
      worst = std::max(worst, std::abs(y[i * ldy + j] - sum) / magnitude);
    }
    for (std::int64_t j = width; j < ldy; ++j) padding_kept &= y[i * ldy + j] == T(77);
  }
  CHECK(padding_kept);
  CHECK(worst < 4 * std::numeric_limits<T>::epsilon());
}

template <class T>
void check_values(std::int64_t rows, std::int64_t cols, std::int64_t features,
                  std::int64_t heads = 1) {
  CAPTURE(rows);
  CAPTURE(features);
  CAPTURE(heads);
  const std::int64_t width = heads * features;
  const Csr a = random_csr(rows, cols, 9);
  const std::int64_t ldx = width + 1, ldg = width + 4;
  const auto x = random_values<T>(cols * ldx + 1, 1), gy = random_values<T>(rows * ldg + 1, 2);
  const auto run = [&] {
    std::vector<T> g(a.nnz() * heads);
    cpu::spmm_backward_values<T>(rows, a.nnz(), heads, features, a.offsets.data(), a.columns.data(),
                                 gy.data(), ldg, x.data(), ldx, g.data());
    return g;
  };
  CHECK(same_on_any_threads(run));
  const auto g = run();
  double worst = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = a.offsets[i] * heads; k < a.offsets[i + 1] * heads; ++k) {
      const std::int64_t e = k / heads, begin = k % heads * features;
      double sum = 0, magnitude = 1;
      for (std::int64_t j = begin; j < begin + features; ++j) {
        const double term = double(gy[i * ldg + j]) * x[a.columns[e] * ldx + j];
        sum += term;
        magnitude += std::abs(term);
      }
      worst = std::max(worst, std::abs(g[k] - sum) / magnitude);
    }
  CHECK(worst < 4 * std::numeric_limits<T>::epsilon());
}

}  // namespace

TEST_CASE("spmm: every width of features, empty rows, leading dimensions, orders") {
  for (std::int64_t features : {0, 1, 3, 7, 8, 9, 15, 31, 33, 63, 64, 65, 130, 371}) {
    check_spmm<float>(65, 33, features, true, false);
    check_spmm<double>(65, 33, features, true, true);
    check_spmm<float>(65, 33, features, false, false);
  }
  check_spmm<float>(0, 5, 4, true, false);
  check_spmm<float>(5, 0, 4, true, false);
  check_spmm<float>(1, 1, 1, true, true);
  check_spmm<float>(3000, 500, 64, true, true);
}

TEST_CASE("spmm: heads with weights of their own") {
  for (std::int64_t features : {0, 1, 5, 8, 12, 32, 67})
    for (std::int64_t heads : {2, 4, 9}) {
      check_spmm<float>(65, 33, features, true, true, heads);
      check_spmm<double>(65, 33, features, true, false, heads);
      check_values<float>(65, 33, features, heads);
      check_values<double>(65, 33, features, heads);
    }
}

TEST_CASE("spmm_backward_values: inner products of rows") {
  for (std::int64_t features : {0, 1, 3, 8, 9, 16, 31, 65, 371}) {
    check_values<float>(65, 33, features);
    check_values<double>(65, 33, features);
  }
  check_values<float>(0, 5, 4);
  check_values<double>(2000, 300, 64);
}

}  // namespace lipgrad
