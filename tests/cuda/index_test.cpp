#include <lipgrad/ops/kernels/index.h>

#include <lipgrad/core/error.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/index.h>

#include "cuda/kernel_test.h"

namespace lipgrad {
namespace {

using test::DeviceVector;
using test::difference;
using test::tolerance;

template <class T, class Index>
void check_gather(std::int64_t rows, std::int64_t count, std::int64_t cols, std::int64_t shift) {
  CAPTURE(cols);
  CAPTURE(shift);
  std::vector<T> x(rows * cols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i % 251);
  std::vector<Index> index(count);
  for (std::int64_t i = 0; i < count; ++i) index[i] = static_cast<Index>((i * i * 7 + 3) % rows);
  std::vector<T> y(count * cols);
  cpu::gather_rows(rows, count, cols, x.data(), index.data(), y.data());
  DeviceVector<T> dx(x, shift), dy(count * cols);
  const DeviceVector<Index> di(index);
  cuda::gather_rows(rows, count, cols, dx.read(), di.read(), dy.data());
  CHECK(dy.host() == y);
}

// Rows of up to 512 terms are added in the order of the CPU: the same bits.
template <class T, class Index>
void check_scatter(std::int64_t rows, std::int64_t cols, const std::vector<Index>& index, bool same,
                   std::int64_t shift = 0) {
  const auto count = static_cast<std::int64_t>(index.size());
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(count);
  CAPTURE(shift);
  std::vector<T> x = random_values<T>(count * cols, 2), y(rows * cols);
  if (!x.empty()) x[0] = T(-0.0);
  cpu::scatter_add_rows(rows, count, cols, x.data(), index.data(), y.data());
  DeviceVector<T> dx(x, shift), dy(rows * cols, shift), again(rows * cols, shift);
  const DeviceVector<Index> di(index);
  cuda::scatter_add_rows(rows, count, cols, dx.read(), di.read(), dy.data());
  cuda::scatter_add_rows(rows, count, cols, dx.read(), di.read(), again.data());
  CHECK(same_bits(dy.host(), again.host()));
  if (same) {
    CHECK(same_bits(dy.host(), y));
  } else {
    CHECK(difference(dy.host(), y) <= tolerance<T>);
  }
}

template <class Index>
std::vector<Index> spread(std::int64_t count, std::int64_t rows) {
  std::vector<Index> index(count);
  for (std::int64_t i = 0; i < count; ++i) index[i] = static_cast<Index>((i * i * 7 + 3) % rows);
  return index;
}

std::string message_of(const Tensor& x) {
  try {
    x.to(cpu_device);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("index: rows of any type and alignment are gathered") {
  if (!test::with_cuda()) return;
  for (std::int64_t shift : {0, 1}) {
    for (std::int64_t cols : {1, 4, 7, 16, 130, 1030}) {
      check_gather<float, std::int32_t>(50, 90, cols, shift);
      check_gather<double, std::int64_t>(50, 90, cols, shift);
      check_gather<std::int32_t, std::int64_t>(50, 90, cols, shift);
      check_gather<std::int64_t, std::int32_t>(50, 90, cols, shift);
      check_gather<std::uint8_t, std::int32_t>(50, 90, cols, shift);
    }
  }
  check_gather<float, std::int32_t>(5, 0, 3, 0);
  check_gather<float, std::int32_t>(5, 3, 0, 0);
}

TEST_CASE("index: rows are added up in the order of their terms") {
  if (!test::with_cuda()) return;
  for (std::int64_t shift : {0, 1}) {
    for (std::int64_t cols : {1, 7, 8, 130}) {
      check_scatter<float>(20, cols, spread<std::int32_t>(90, 20), true, shift);
      check_scatter<double>(300, cols, spread<std::int64_t>(700, 300), true, shift);
    }
  }
  check_scatter<float>(70000, 1, spread<std::int32_t>(5000, 70000), true);  // three digits
  check_scatter<double>(257, 2, spread<std::int64_t>(20000, 257), true);    // several tiles
  check_scatter<float>(1, 3, std::vector<std::int32_t>(512, 0), true);
  check_scatter<float>(4, 3, std::vector<std::int32_t>(), true);
  check_scatter<float>(4, 0, spread<std::int32_t>(10, 4), true);
  check_scatter<float>(0, 3, std::vector<std::int32_t>(), true);
}

TEST_CASE("index: hubs are added up in pieces, bitwise repeatably") {
  if (!test::with_cuda()) return;
  check_scatter<float>(1, 5, std::vector<std::int32_t>(513, 0), false);
  check_scatter<double>(3, 4, std::vector<std::int32_t>(1024, 1), false);
  // Hubs beside one another, with short rows between and behind them.
  std::vector<std::int32_t> index;
  for (int i = 0; i < 3000; ++i) {
    index.push_back(i % 3 == 0 ? 5 : i % 3 == 1 ? 6 : i % 7);
    if (i % 4 == 0) index.push_back(9);
  }
  check_scatter<float>(11, 6, index, false);
  check_scatter<double>(11, 7, index, false, 1);
  // 0.1 many times: a float sum one after another would be off by some 3e-4.
  const std::int64_t count = 50000;
  const DeviceVector<float> x(std::vector<float>(count, 0.1f));
  const DeviceVector<std::int32_t> zero(std::vector<std::int32_t>(count, 0));
  DeviceVector<float> y(1);
  cuda::scatter_add_rows(1, count, 1, x.read(), zero.read(), y.data());
  CHECK(std::abs(y.host()[0] / (0.1f * count) - 1) < 1e-5);
}

TEST_CASE("index: what is out of range is left out, told at the next synchronisation, once") {
  if (!test::with_cuda()) return;
  const Tensor x = from_values<float>({3, 2}, {1, 2, 3, 4, 5, 6}).to(cuda_device());
  const auto index = [](std::initializer_list<std::int64_t> values) {
    return from_values<std::int64_t>({static_cast<std::int64_t>(values.size())}, values)
        .to(cuda_device());
  };
  const Tensor bad = gather(x, index({0, 1, 3, -1}));
  CHECK(message_of(bad).find("(position 2) is not in [0, 3)") != std::string::npos);
  CHECK(bad.to(cpu_device).to_vector<float>() == std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0});
  const Tensor sums = scatter_add(x, index({1, -5, 1}), 2);
  CHECK(message_of(sums).find("(position 1) is not in [0, 2)") != std::string::npos);
  CHECK(sums.to(cpu_device).to_vector<float>() == std::vector<float>{0, 0, 6, 8});
  CHECK(message_of(scatter_add(x, index({0, 0, 0}), 0)) != "");  // no row at all
  CHECK(message_of(gather(x, index({2}))) == "");
}

TEST_CASE("index: gradients of gather and scatter_add") {
  if (!test::with_cuda()) return;
  const Tensor host = from_vector({5, 3}, random_values<double>(15, 1)),
               picked = from_values<std::int32_t>({2, 2}, {4, 0, 4, 2});
  const auto run = [&](Device device) {
    Tape tape;
    const Tensor x = tape.watch(host.to(device));
    const Tensor y = gather(x, picked.to(device));
    const Tensor z = scatter_add(y, picked.to(device), 6);
    return tape.grad(z, {x}, z.detach())[0].to(cpu_device).to_vector<double>();
  };
  CHECK(run(cuda_device()) == run(cpu_device));
}

}  // namespace lipgrad
