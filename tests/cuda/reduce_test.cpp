#include <lipgrad/ops/kernels/reduce.h>

#include <lipgrad/core/kernels/accumulate.h>
#include <lipgrad/core/runtime.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

constexpr double inf = std::numeric_limits<double>::infinity();

struct Sizes {
  std::int64_t outer, n, inner;
};
// Rows: for groups of lanes, for a block, for several blocks; columns: for a thread, for a block,
// for several blocks, wider than a tile.
const Sizes all_sizes[] = {{1, 1, 1},    {3, 2, 1},    {100, 7, 1},   {5, 33, 1},    {300, 48, 1},
                           {7, 513, 1},  {2, 2048, 1}, {3, 2051, 1},  {1, 20000, 1}, {2, 16385, 1},
                           {4, 3, 5},    {1, 17, 2},   {2, 100, 7},   {1, 700, 33},  {3, 60, 49},
                           {1, 5000, 3}, {2, 900, 70}, {2000, 17, 40}};

template <class T>
void check_reductions(const Sizes& s, std::int64_t shift) {
  CAPTURE(s.outer);
  CAPTURE(s.n);
  CAPTURE(s.inner);
  CAPTURE(shift);
  const std::int64_t count = s.outer * s.n * s.inner, slots = s.outer * s.inner;
  const std::vector<T> x = random_values<T>(count, 1, -1, 3), gy = random_values<T>(slots, 2);
  std::vector<T> y(slots), mean(slots), gx(count);
  DeviceVector<T> dx(x, shift), dgy(gy, shift), dy(slots, shift), dmean(slots, shift),
      dgx(count, shift);

  cpu::sum(s.outer, s.n, s.inner, 0.5, x.data(), y.data());
  cuda::sum(s.outer, s.n, s.inner, 0.5, dx.read(), dy.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);

  cpu::var(s.outer, s.n, s.inner, 0.25, x.data(), mean.data(), y.data());
  cuda::var(s.outer, s.n, s.inner, 0.25, dx.read(), dmean.data(), dy.data());
  CHECK(difference(dmean.host(), mean) <= tolerance<T>);
  CHECK(difference(dy.host(), y) <= tolerance<T>);
  cpu::var_backward(s.outer, s.n, s.inner, 0.25, x.data(), mean.data(), gy.data(), gx.data());
  cuda::var_backward(s.outer, s.n, s.inner, 0.25, dx.read(), dmean.read(), dgy.read(), dgx.data());
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);

  cpu::logsumexp(s.outer, s.n, s.inner, x.data(), y.data());
  cuda::logsumexp(s.outer, s.n, s.inner, dx.read(), dy.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);
  cpu::logsumexp_backward(s.outer, s.n, s.inner, x.data(), y.data(), gy.data(), gx.data());
  cuda::logsumexp_backward(s.outer, s.n, s.inner, dx.read(), dy.read(), dgy.read(), dgx.data());
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);

  // Few values, so that there are ties.
  std::vector<T> ties(count);
  for (std::int64_t i = 0; i < count; ++i) ties[i] = static_cast<T>(static_cast<int>(4 * x[i]));
  if (count > 40) ties[count / 2] = std::numeric_limits<T>::quiet_NaN();
  if (count > 40) ties[count / 3] = static_cast<T>(inf);
  std::vector<std::int64_t> index(slots);
  DeviceVector<T> dties(ties, shift);
  DeviceVector<std::int64_t> dindex(slots, shift);
  cpu::max(s.outer, s.n, s.inner, ties.data(), y.data(), index.data());
  cuda::max(s.outer, s.n, s.inner, dties.read(), dy.data(), dindex.data());
  CHECK(difference(dy.host(), y) == 0);
  CHECK(dindex.host() == index);
  cpu::max_backward(s.outer, s.n, s.inner, index.data(), gy.data(), gx.data());
  cuda::max_backward(s.outer, s.n, s.inner, dindex.read(), dgy.read(), dgx.data());
  CHECK(difference(dgx.host(), gx) == 0);
}

// One result of 5 rows of n, each with another oddity.
template <class T>
void check_odd_rows(std::int64_t n, std::int64_t inner) {
  CAPTURE(n);
  CAPTURE(inner);
  std::vector<T> x = random_values<T>(5 * n * inner, 1);
  const auto at = [&](std::int64_t row, std::int64_t i) -> T& { return x[(row * n + i) * inner]; };
  for (std::int64_t i = 0; i < n; ++i) at(0, i) = static_cast<T>(-inf);
  at(1, n - 1) = std::numeric_limits<T>::quiet_NaN();
  at(2, n / 2) = static_cast<T>(inf);
  at(3, 0) = static_cast<T>(-inf);
  at(4, n / 2) = 1000;
  std::vector<T> y(5 * inner), gx(x.size());
  DeviceVector<T> dx(x), dy(5 * inner), dgx(x.size());
  cpu::logsumexp(5, n, inner, x.data(), y.data());
  cuda::logsumexp(5, n, inner, dx.read(), dy.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);
  cpu::logsumexp_backward(5, n, inner, x.data(), y.data(), y.data(), gx.data());
  cuda::logsumexp_backward(5, n, inner, dx.read(), dy.read(), dy.read(), dgx.data());
  CHECK(difference(dgx.host(), gx) <= tolerance<T>);
  cpu::sum(5, n, inner, 1.0, x.data(), y.data());
  cuda::sum(5, n, inner, 1.0, dx.read(), dy.data());
  CHECK(difference(dy.host(), y) <= tolerance<T>);
}

template <class T>
void check_accumulate(const ReducedBox& box, std::int64_t shift) {
  std::int64_t from_size = 1, to_size = 1;
  for (int i = 0; i < box.rank; ++i) {
    CAPTURE(box.size[i]);
    from_size *= box.size[i];
    if (box.kept[i]) to_size *= box.size[i];
  }
  CAPTURE(box.rank);
  const std::vector<T> from = random_values<T>(from_size, 1);
  std::vector<T> to = random_values<T>(to_size, 2);
  DeviceVector<T> dfrom(from, shift), dto(to, shift);
  cpu::accumulate(box, to.data(), from.data());
  cuda::accumulate(box, dto.data(), dfrom.read());
  CHECK(difference(dto.host(), to) <= tolerance<T>);
}

template <class T>
void check_fill(T value) {
  for (std::int64_t shift : {0, 1, 3}) {
    for (std::int64_t n : {1, 255, 4096, 5000}) {
      DeviceVector<T> x(n + 3, shift);
      cuda::fill(x.data(), n, value);
      std::vector<T> expected(n, value);
      expected.insert(expected.end(), 3, T(77));
      CHECK(x.host() == expected);
    }
  }
}

}  // namespace

TEST_CASE("reduce: all reductions and their gradients equal the CPU's") {
  if (!test::with_cuda()) return;
  for (const Sizes& s : all_sizes) {
    check_reductions<float>(s, 0);
    check_reductions<double>(s, 1);
  }
  check_reductions<float>({3, 2051, 1}, 1);
}

TEST_CASE("reduce: the same bits at any alignment") {
  if (!test::with_cuda()) return;
  for (const Sizes& s : {Sizes{3, 64, 1}, Sizes{2, 4096, 1}, Sizes{1, 40000, 1}}) {
    const std::vector<float> x = random_values<float>(s.outer * s.n * s.inner, 4);
    std::vector<float> first;
    for (std::int64_t shift : {0, 1, 2}) {
      const DeviceVector<float> dx(x, shift);
      DeviceVector<float> y(s.outer);
      cuda::sum(s.outer, s.n, s.inner, 1.0, dx.read(), y.data());
      if (shift == 0) first = y.host();
      CHECK(same_bits(y.host(), first));
    }
  }
}

TEST_CASE("reduce: rows of -inf, infinities and NaN") {
  if (!test::with_cuda()) return;
  for (std::int64_t n : {3, 40, 3000, 20000}) {
    check_odd_rows<float>(n, 1);
    check_odd_rows<double>(n, 1);
  }
  check_odd_rows<float>(3, 4);
  check_odd_rows<float>(400, 4);
}

TEST_CASE("reduce: nothing to sum, and no results") {
  if (!test::with_cuda()) return;
  for (std::int64_t inner : {1, 3}) {
    DeviceVector<double> y(2 * inner);
    cuda::sum<double>(2, 0, inner, 1.0, nullptr, y.data());
    CHECK(y.host() == std::vector<double>(2 * inner, 0.0));
    cuda::sum<double>(2, 0, inner, inf, nullptr, y.data());  // the mean of nothing
    CHECK(std::isnan(y.host()[0]));
    cuda::logsumexp<double>(2, 0, inner, nullptr, y.data());
    CHECK(y.host() == std::vector<double>(2 * inner, -inf));
  }
  cuda::sum<double>(0, 5, 1, 1.0, nullptr, nullptr);
  cuda::sum<double>(5, 5, 0, 1.0, nullptr, nullptr);
}

TEST_CASE("reduce: a long sum of one sign is exact to 1e-6") {
  if (!test::with_cuda()) return;
  const std::int64_t n = 3'000'001;
  const std::vector<float> x = random_values<float>(n, 9, 0.9, 1.1);
  double expected = 0;
  for (float v : x) expected += v;
  const DeviceVector<float> dx(x);
  DeviceVector<float> y(1);
  cuda::sum(1, n, 1, 1.0, dx.read(), y.data());
  CHECK(std::abs(y.host()[0] - expected) <= 1e-6 * expected);
}

TEST_CASE("accumulate: every pattern of summed dimensions equals the CPU's") {
  if (!test::with_cuda()) return;
  std::vector<ReducedBox> boxes(1);  // a single element
  for (std::vector<std::int64_t> size : {std::vector<std::int64_t>{1100},
                                         {30, 50},
                                         {6, 7, 8},
                                         {5, 4, 3, 6},
                                         {3, 2, 3, 2, 3, 2, 3, 2}}) {
    for (const bool first : {false, true}) {
      ReducedBox box;
      for (std::size_t i = 0; i < size.size(); ++i) box.add(size[i], (i % 2 == 0) == first);
      boxes.push_back(box);
    }
  }
  for (const ReducedBox& box : boxes) {
    check_accumulate<float>(box, 0);
    check_accumulate<double>(box, 1);
  }
  ReducedBox nothing;
  nothing.add(0, false);
  nothing.add(4, true);
  check_accumulate<float>(nothing, 0);
}

TEST_CASE("fill and has_nonfinite") {
  if (!test::with_cuda()) return;
  check_fill<float>(1.5f);
  check_fill<double>(-2.5);
  check_fill<std::int32_t>(-7);
  check_fill<std::int64_t>(std::int64_t{1} << 40);
  check_fill<std::uint8_t>(200);
  for (std::int64_t n : {1, 4096, 5001}) {
    for (std::int64_t shift : {0, 1}) {
      std::vector<float> x = random_values<float>(n, 1);
      DeviceVector<int> found(1);
      const auto look = [&] {
        const DeviceVector<float> dx(x, shift);
        cuda::has_nonfinite(dx.read(), n, found.data());
        return found.host()[0];
      };
      CHECK(look() == 0);
      x[n - 1] = std::numeric_limits<float>::max();
      CHECK(look() == 0);
      x[n - 1] = std::numeric_limits<float>::quiet_NaN();
      CHECK(look() == 1);
      x[n - 1] = -std::numeric_limits<float>::infinity();
      CHECK(look() == 1);
      x[n - 1] = 0;
      CHECK(look() == 0);
    }
  }
}

}  // namespace lipgrad
