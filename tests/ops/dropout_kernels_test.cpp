#include <lipgrad/ops/kernels/dropout.h>

#include <doctest/doctest.h>

#include "ops/kernel_test.h"

namespace lipgrad {
namespace {

constexpr std::uint64_t seed = 0x123456789abcdefull, draw = 0xfedcba9876543210ull;

TEST_CASE("philox_words gives the words of philox_word") {
  for (std::uint64_t first : {std::uint64_t{0}, std::uint64_t{4}, (std::uint64_t{1} << 34) - 16}) {
    std::vector<std::uint32_t> words(77);
    cpu::philox_words(seed, draw, first, 77, words.data());
    for (int i = 0; i < 77; ++i) CHECK(words[i] == philox_word(seed, draw, first + i));
  }
}

template <class T>
void check_dropout(double p) {
  for (std::int64_t n : {0, 1, 15, 16, 17, 300, 30011}) {
    const std::vector<T> x = random_values<T>(n, 4);
    std::vector<T> y(n);
    cpu::dropout(n, p, seed, draw, x.data(), y.data());
    bool equal = true;
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const bool keep = unit_float(philox_word(seed, draw, i)) >= p;
      equal = equal && y[i] == (keep ? x[i] * static_cast<T>(p < 1 ? 1 / (1 - p) : 0) : T(0));
      kept += keep;
    }
    CHECK(equal);
    if (n > 30000) CHECK(std::abs(double(kept) / n - (1 - p)) < 0.02);
  }
}

TEST_CASE("dropout kernel: mask, scale, ends of the range") {
  for (double p : {0.0, 0.1, 0.5, 0.6, 1 - 1e-9, 1.0}) {
    check_dropout<float>(p);
    check_dropout<double>(p);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float y = 1;
  cpu::dropout(1, 1.0, seed, draw, &nan, &y);
  CHECK(y == 0);
  CHECK(same_on_any_threads([] {
    std::vector<float> x = random_values<float>(100003, 9);
    cpu::dropout<float>(100003, 0.3, seed, draw, x.data(), x.data());
    return x;
  }));
}

}  // namespace
}  // namespace lipgrad
