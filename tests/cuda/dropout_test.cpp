#include <lipgrad/ops/kernels/dropout.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;

template <class T>
void check(std::int64_t n, double p, std::int64_t shift) {
  CAPTURE(n);
  CAPTURE(p);
  CAPTURE(shift);
  constexpr std::uint64_t seed = 0x123456789abcdef, draw = (std::uint64_t{1} << 40) + 3;
  std::vector<T> x = random_values<T>(n, 1), y(n);
  if (n > 2) x[2] = std::numeric_limits<T>::quiet_NaN();  // 0 where dropped
  cpu::dropout(n, p, seed, draw, x.data(), y.data());
  DeviceVector<T> dx(x, shift), dy(n, shift);
  cuda::dropout(n, p, seed, draw, dx.read(), dy.data());
  CHECK(same_bits(dy.host(), y));
  cuda::dropout(n, p, seed, draw, dx.read(), dx.data());
  CHECK(same_bits(dx.host(), y));
}

template <class T>
void check_rows(std::int64_t rows, std::int64_t cols, double p, std::int64_t shift) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(p);
  CAPTURE(shift);
  constexpr std::uint64_t seed = 0x123456789abcdef, draw = (std::uint64_t{1} << 40) + 3;
  std::vector<T> x = random_values<T>(rows * cols, 1), y(rows * cols);
  for (std::int64_t i = 0; i < rows * cols; i += 3) x[i] = std::numeric_limits<T>::quiet_NaN();
  cpu::dropout_rows(rows, cols, p, seed, draw, x.data(), y.data());
  DeviceVector<T> dx(x, shift), dy(rows * cols, shift);
  cuda::dropout_rows(rows, cols, p, seed, draw, dx.read(), dy.data());
  CHECK(same_bits(dy.host(), y));
}

}  // namespace

TEST_CASE("dropout_rows: the bits of the CPU, rows that end within packs and blocks") {
  if (!test::with_cuda()) return;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{0, 4},  {3, 0},   {40, 1},  {9, 3},
                                                         {7, 64}, {5, 301}, {2, 2500}};
  for (const auto& [rows, cols] : sizes) {
    for (double p : {0.0, 0.5, 1.0}) {
      for (std::int64_t shift : {0, 1}) {
        check_rows<float>(rows, cols, p, shift);
        check_rows<double>(rows, cols, p, shift);
      }
    }
  }
}

TEST_CASE("dropout: the bits of the CPU, element by element, at any alignment and in place") {
  if (!test::with_cuda()) return;
  for (std::int64_t n : {0, 1, 3, 4, 5, 1023, 1025, 6001}) {
    for (double p : {0.0, 0.3, 1.0}) {
      for (std::int64_t shift : {0, 1}) {
        check<float>(n, p, shift);
        check<double>(n, p, shift);
      }
    }
  }
}

}  // namespace lipgrad
