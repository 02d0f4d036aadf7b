#include <lipgrad/ops/kernels/index.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

template <class T, class Index>
void check_index(std::int64_t rows, std::int64_t count, std::int64_t cols) {
  const std::vector<T> x = random_values<T>(rows * cols, 1), g = random_values<T>(count * cols, 2);
  std::vector<Index> index(count);
  for (std::int64_t i = 0; i < count; ++i) index[i] = static_cast<Index>((i * i * 7 + 3) % rows);
  std::vector<T> y(count * cols), sum(rows * cols, T(5)), expected(rows * cols);
  cpu::gather_rows(rows, count, cols, x.data(), index.data(), y.data());
  cpu::scatter_add_rows(rows, count, cols, g.data(), index.data(), sum.data());
  bool equal = true;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < cols; ++c) {
      equal = equal && y[i * cols + c] == x[index[i] * cols + c];
      expected[index[i] * cols + c] += g[i * cols + c];
    }
  }
  CHECK(equal);
  CHECK(same_bits(sum, expected));  // the same order of addition
  CHECK(cpu::find_out_of_range(count, rows, index.data()) == -1);
}

TEST_CASE("gather and scatter-add kernels") {
  check_index<float, std::int32_t>(10, 25, 7);
  check_index<float, std::int64_t>(3000, 10000, 33);
  check_index<double, std::int32_t>(1, 5, 1);
  check_index<double, std::int64_t>(7, 0, 3);
  const std::int32_t bad[] = {0, 3, -1, 5};
  CHECK(cpu::find_out_of_range(4, 4, bad) == 2);
  CHECK(cpu::find_out_of_range(4, 3, bad) == 1);
  CHECK(same_on_any_threads([] {
    const std::vector<float> g = random_values<float>(50000 * 8, 2);
    std::vector<std::int64_t> index(50000);
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = i * 13 % 977;
    std::vector<float> sum(977 * 8);
    cpu::scatter_add_rows<float, std::int64_t>(977, 50000, 8, g.data(), index.data(), sum.data());
    return sum;
  }));
}

}  // namespace
}  // namespace lipgrad
