#include <lipgrad/ops/kernels/spmm.h>

#include <numeric>
#include <random>

#include "cuda/kernel_test.h"
#include "cuda/spmm_paths.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

struct Pattern {
  std::int64_t rows, cols;
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> columns;

  // Rows of the given numbers of entries in random columns.
  Pattern(std::int64_t cols_in, const std::vector<int>& counts)
      : rows(static_cast<std::int64_t>(counts.size())), cols(cols_in) {
    std::mt19937 rng(5);
    for (const int count : counts) {
      for (int k = 0; k < count; ++k)
        columns.push_back(static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(cols)));
      offsets.push_back(nnz());
    }
  }
  std::int64_t nnz() const { return static_cast<std::int64_t>(columns.size()); }
};

template <class T>
void check(const Pattern& a, std::int64_t features, std::int64_t pad, std::int64_t shift,
           std::int64_t heads = 1) {
  CAPTURE(a.rows);
  CAPTURE(a.nnz());
  CAPTURE(features);
  CAPTURE(pad);
  CAPTURE(heads);
  const std::int64_t ldx = heads * features + pad, ldy = heads * features + 2 * pad, nnz = a.nnz();
  const auto x = random_values<T>(a.cols * ldx, 1), values = random_values<T>(nnz * heads, 2),
             gy = random_values<T>(a.rows * ldy, 3);
  std::vector<std::int64_t> order(nnz);
  for (std::int64_t e = 0; e < nnz; ++e) order[e] = nnz - 1 - e;
  const DeviceVector<std::int64_t> offsets(a.offsets), dorder(order);
  const DeviceVector<std::int32_t> columns(a.columns);
  const DeviceVector<T> dx(x, shift), dvalues(values), dgy(gy, shift);
  const std::vector<T> blank(a.rows * ldy, T(77));

  for (int variant = 0; variant < 3; ++variant) {  // ones, values, values in another order
    CAPTURE(variant);
    std::vector<T> expected = blank;
    cpu::spmm<T>(a.rows, a.cols, nnz, heads, features, a.offsets.data(), a.columns.data(),
                 variant == 2 ? order.data() : nullptr, variant > 0 ? values.data() : nullptr,
                 x.data(), ldx, expected.data(), ldy);
    const auto run = [&](auto&& f) {
      DeviceVector<T> y(blank, shift);
      f(y.data());
      return y.host();
    };
    const std::int64_t* in_order = variant == 2 ? dorder.read() : nullptr;
    const T* weights = variant > 0 ? dvalues.read() : nullptr;
    const auto own = [&](T* y) {
      cuda::spmm_rows<T>(a.rows, nnz, heads, features, offsets.read(), columns.read(), in_order,
                         weights, dx.read(), ldx, y, ldy);
    };
    const std::vector<T> y = run(own);
    CHECK(difference(y, expected) <= tolerance<T>);
    CHECK(y == run(own));
    CHECK(difference(run([&](T* to) {
                       cuda::spmm<T>(a.rows, a.cols, nnz, heads, features, offsets.read(),
                                     columns.read(), in_order, weights, dx.read(), ldx, to, ldy);
                     }),
                     expected) <= tolerance<T>);
    if (variant == 1 && heads == 1 && nnz > 0 && features > 0 && nnz <= a.rows * a.cols)
      CHECK(difference(run([&](T* to) {
                         cuda::spmm_cusparse<T>(a.rows, a.cols, nnz, features, offsets.read(),
                                                columns.read(), weights, dx.read(), ldx, to, ldy);
                       }),
                       y) <= tolerance<T>);
  }

  std::vector<T> expected(nnz * heads, T(77));
  cpu::spmm_backward_values<T>(a.rows, nnz, heads, features, a.offsets.data(), a.columns.data(),
                               gy.data(), ldy, x.data(), ldx, expected.data());
  DeviceVector<T> gvalues(nnz * heads);
  cuda::spmm_backward_values<T>(a.rows, nnz, heads, features, offsets.read(), columns.read(),
                                dgy.read(), ldy, dx.read(), ldx, gvalues.data());
  CHECK(difference(gvalues.host(), expected) <= tolerance<T>);
}

}  // namespace

TEST_CASE("spmm: both ways, against the CPU") {
  if (!test::with_cuda()) return;
  // Rows without entries, of the length of a piece and of one more, hubs that start and end
  // where pieces do, and two hubs in one piece.
  const std::vector<Pattern> patterns{
      Pattern(5, {}),
      Pattern(7, {0, 0, 0}),
      Pattern(40, {3, 0, 1, 7, 40, 2, 0, 0, 31, 33, 64, 1}),
      Pattern(300, {256, 257, 0, 255, 1, 5000, 300, 0, 0, 3}),
      Pattern(900, {0, 512, 0, 768, 300, 20, 300}),
      Pattern(600, std::vector<int>(70, 5)),
  };
  for (const Pattern& a : patterns) {
    for (const std::int64_t features : {0, 1, 3, 7, 32, 64, 100, 129, 260}) {
      if (a.nnz() > 2000 && features > 64 && features != 129) continue;
      check<float>(a, features, 0, 0);
      check<double>(a, features, 3, 0);
      if (features % 4 == 0) check<float>(a, features, 4, 0);
      check<float>(a, features, 1, 1);
    }
    for (const std::int64_t features : {0, 1, 6, 8, 36}) {
      check<float>(a, features, 0, 0, 4);
      check<double>(a, features, 2, 0, 3);
    }
  }
}

TEST_CASE("spmm: cuSPARSE takes what fits it") {
  const double value = 1;
  const std::int64_t order = 0, limit = std::int64_t{1} << 31;
  const auto fits = [&](std::int64_t rows, std::int64_t nnz, std::int64_t features,
                        const std::int64_t* in_order, const void* values) {
    return cuda::fits_cusparse(rows, 1000, nnz, features, in_order, values, features, features);
  };
  CHECK(fits(100, 500, 64, nullptr, &value));
  CHECK_FALSE(fits(100, 500, 64, &order, &value));
  CHECK_FALSE(fits(100, 500, 64, nullptr, nullptr));
  CHECK_FALSE(fits(100, 500, 8, nullptr, &value));
  CHECK_FALSE(fits(100, 0, 64, nullptr, &value));
  CHECK_FALSE(fits(limit, 500, 64, nullptr, &value));
  CHECK_FALSE(fits(100000000, limit, 64, nullptr, &value));
  CHECK_FALSE(fits(100, 500, limit, nullptr, &value));
  CHECK_FALSE(fits(1, 1001, 64, nullptr, &value));  // more entries than places
}

}  // namespace lipgrad
