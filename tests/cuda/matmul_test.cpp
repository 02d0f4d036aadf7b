#include <lipgrad/ops/kernels/matmul.h>

#include <lipgrad/core/error.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

// stride 0: an operand shared by the batch.
template <class T>
void check(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool share_a,
           bool share_b, std::int64_t shift) {
  CAPTURE(batch);
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  const std::int64_t stride_a = share_a ? 0 : m * k, stride_b = share_b ? 0 : k * n;
  const auto a = random_values<T>((share_a ? 1 : batch) * m * k, 1),
             b = random_values<T>((share_b ? 1 : batch) * k * n, 2);
  const DeviceVector<T> da(a, shift), db(b, shift);
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      CAPTURE(trans_a);
      CAPTURE(trans_b);
      std::vector<T> c(batch * m * n);
      cpu::matmul(batch, trans_a, trans_b, m, n, k, a.data(), stride_a, b.data(), stride_b,
                  c.data());
      DeviceVector<T> dc(batch * m * n, shift);
      cuda::matmul(batch, trans_a, trans_b, m, n, k, da.read(), stride_a, db.read(), stride_b,
                   dc.data());
      CHECK(difference(dc.host(), c) <= tolerance<T>);
    }
  }
}

template <class T>
void check_all() {
  for (const std::int64_t shift : {0, 1}) {
    check<T>(1, 1, 1, 1, false, false, shift);
    check<T>(1, 33, 47, 65, false, false, shift);
    check<T>(5, 7, 3, 11, false, false, shift);
    check<T>(3, 8, 5, 4, true, false, shift);
    check<T>(3, 8, 5, 4, false, true, shift);
    check<T>(4, 2, 6, 3, true, true, shift);
  }
  check<T>(2, 3, 4, 0, false, false, 0);  // zeros
  check<T>(0, 3, 4, 5, false, false, 0);
  check<T>(2, 0, 4, 5, false, false, 0);
  check<T>(2, 3, 0, 5, false, false, 0);
  check<T>(70000, 1, 2, 2, false, true, 0);  // more than one launch holds
}

}  // namespace

TEST_CASE("matmul: batches, shared operands, transposes and empty sizes equal the CPU's") {
  if (!test::with_cuda()) return;
  check_all<float>();
  check_all<double>();
}

TEST_CASE("matmul: both precisions; exact unless asked") {
  if (!test::with_cuda()) return;
  CHECK(matmul_precision() == MatmulPrecision::exact);
  const auto a = random_values<float>(64 * 96, 1), b = random_values<float>(96 * 32, 2);
  std::vector<float> c(64 * 32);
  cpu::matmul(1, false, false, 64, 32, 96, a.data(), 0, b.data(), 0, c.data());
  const DeviceVector<float> da(a), db(b);
  DeviceVector<float> dc(64 * 32);
  {
    const test::Precision tf32(MatmulPrecision::tf32);
    cuda::matmul(1, false, false, 64, 32, 96, da.read(), 0, db.read(), 0, dc.data());
  }
  CHECK(difference(dc.host(), c) <= 5e-3);
  cuda::matmul(1, false, false, 64, 32, 96, da.read(), 0, db.read(), 0, dc.data());
  CHECK(difference(dc.host(), c) <= 1e-6);
}

TEST_CASE("matmul: rows that cuBLAS cannot count are told") {
  if (!test::with_cuda()) return;
  const std::int64_t huge = std::int64_t{1} << 31;
  CHECK_THROWS_WITH_AS(
      cuda::matmul<float>(1, false, false, 2, huge, 3, nullptr, 0, nullptr, 0, nullptr),
      "matmul: rows of more than 2147483647 elements: (2, 3) times (3, 2147483648)", Error);
  CHECK_THROWS_WITH_AS(
      cuda::matmul<float>(1, true, true, 2, 3, huge, nullptr, 0, nullptr, 0, nullptr),
      "matmul: rows of more than 2147483647 elements: (2147483648, 2) transposed times (3, "
      "2147483648) transposed",
      Error);
}

}  // namespace lipgrad
