#include <lipgrad/ops/kernels/optimizer.h>

#include <doctest/doctest.h>

#include <algorithm>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

// Three steps on four numbers; the results are those of torch.optim in float64.
const std::vector<double> start = {0.5, -1.25, 2.0, 0.125};
const std::vector<std::vector<double>> gradients = {
    {0.1, -0.2, 0.3, 0.0}, {0.05, 0.4, -0.1, 1.0}, {-0.3, 0.2, 0.1, -0.5}};

template <class T>
std::vector<T> cast(const std::vector<double>& v) {
  return std::vector<T>(v.begin(), v.end());
}

template <class T>
void check_result(const std::vector<T>& got, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(std::abs(got[i] - expected[i]) <= (sizeof(T) == 4 ? 3e-7 : 1e-15));
}

template <class T>
void check_sgd(double weight_decay, SgdRule rule, const std::vector<double>& expected) {
  std::vector<T> p = cast<T>(start), m(4);
  for (const auto& g : gradients) {
    const std::vector<T> grad = cast<T>(g);
    const SgdTensor<T> t{4,   p.data(),    grad.data(), rule.momentum != 0 ? m.data() : nullptr,
                         0.1, weight_decay};
    cpu::sgd(1, &t, rule);
  }
  check_result(p, expected);
}

template <class T>
void check_adam(double weight_decay, AdamRule rule, const std::vector<double>& expected) {
  std::vector<T> p = cast<T>(start), m(4), v(4);
  std::int64_t step = 0;
  for (const auto& g : gradients) {
    const std::vector<T> grad = cast<T>(g);
    const AdamTensor<T> t{4, p.data(), grad.data(), m.data(), v.data(), 0.1, weight_decay, ++step};
    cpu::adam(1, &t, rule);
  }
  check_result(p, expected);
}

TEST_CASE("optimizer kernels: PyTorch's values") {
  const std::vector<double> sgd = {0.5135264895, -1.28625372875, 1.964055968, 0.07472537487499999};
  const std::vector<double> momentum = {0.4906403895, -1.28482947875, 1.916593568,
                                        -0.015600650125000025};
  const std::vector<double> nesterov = {0.50906, -1.32762, 1.90493, -0.051};
  const std::vector<double> adam = {0.33901899594406193, -1.2317295079907458, 1.7977438407695412,
                                    -0.0723938676811066};
  const std::vector<double> adamw = {0.3445365206618592, -1.2307879330386187, 1.7899410356656054,
                                     0.026986978031880864};
  check_sgd<double>(0.01, {}, sgd);
  check_sgd<double>(0.01, {0.9, false}, momentum);
  check_sgd<double>(0, {0.9, true}, nesterov);
  check_adam<double>(0.01, {}, adam);
  check_adam<double>(0.05, {0.8, 0.95, 1e-6, true}, adamw);
  check_sgd<float>(0.01, {0.9, false}, momentum);
  check_adam<float>(0.01, {}, adam);
  check_adam<float>(0.05, {0.8, 0.95, 1e-6, true}, adamw);
}

TEST_CASE("optimizer kernels: many tensors at once, any number of threads") {
  const std::vector<std::int64_t> sizes = {3, 0, 100000, 17, 16384, 16385, 1};
  const auto run = [&](bool together) {
    std::vector<std::vector<float>> p, g, m, v;
    std::vector<AdamTensor<float>> list;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      p.push_back(random_values<float>(sizes[t], 2 * t));
      g.push_back(random_values<float>(sizes[t], 2 * t + 1));
      m.emplace_back(sizes[t]);
      v.emplace_back(sizes[t]);
      list.push_back({sizes[t], p[t].data(), g[t].data(), m[t].data(), v[t].data(), 0.01, 0.1, 1});
    }
    if (together) {
      cpu::adam<float>(list.size(), list.data(), {});
    } else {
      for (const auto& t : list) cpu::adam(1, &t, {});
    }
    std::vector<float> all;
    for (const auto& one : p) all.insert(all.end(), one.begin(), one.end());
    return all;
  };
  CHECK(same_bits(run(true), run(false)));
  CHECK(same_on_any_threads([&] { return run(true); }));
}

template <class T>
void check_squares(const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<T>> tensors;
  std::vector<const T*> x;
  for (std::size_t t = 0; t < sizes.size(); ++t)
    tensors.push_back(random_values<T>(sizes[t], static_cast<int>(t)));
  for (const auto& tensor : tensors) x.push_back(tensor.data());
  const auto sums = [&] {
    std::vector<double> result(sizes.size(), -1);
    cpu::sums_of_squares<T>(sizes.size(), sizes.data(), x.data(), result.data());
    return result;
  };
  const std::vector<double> got = sums();
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    long double expected = 0;
    for (T v : tensors[t]) expected += static_cast<long double>(v) * v;
    CHECK(std::abs(got[t] - static_cast<double>(expected)) <= 1e-14 * got[t]);
  }
  CHECK(same_on_any_threads(sums));
}

TEST_CASE("sums_of_squares") {
  check_squares<float>({100001, 3, 0, 16384, 16385, 1, 31});
  check_squares<double>({100001, 3, 0, 16384, 16385, 1, 15});
  check_squares<float>({});
  // Floats whose squares no float holds.
  const float x[] = {1e30F, -1e30F, 1e-30F};
  const float* pieces[] = {x, x + 2};
  const std::int64_t sizes[] = {2, 1};
  double sums[2];
  cpu::sums_of_squares<float>(2, sizes, pieces, sums);
  CHECK(sums[0] == doctest::Approx(2e60).epsilon(1e-6));
  CHECK(sums[1] == doctest::Approx(1e-60).epsilon(1e-6));
}

}  // namespace
}  // namespace lipgrad
