#include <lipgrad/ops/group_sort.h>

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/error.h>
#include <lipgrad/core/random.h>
#include <support/tensors.h>

namespace lipgrad {

TEST_CASE("group_sort puts the larger of two neighbours first") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = from_values<float>({2, 4}, {1, 2, 5, 3, nan, 1, 7, 7});
  const std::vector<float> y = group_sort(x).to_vector<float>();
  CHECK(std::vector<float>(y.begin(), y.begin() + 4) == std::vector<float>{2, 1, 5, 3});
  CHECK(std::isnan(y[4]));
  CHECK(y[5] == 1);
  CHECK(y[6] == 7);
  CHECK(y[7] == 7);
  CHECK_THROWS_WITH_AS(group_sort(ones({4, 3})),
                       "group_sort: expects an even number of channels, got (4, 3)", Error);
  CHECK_THROWS_AS(group_sort(ones({})), Error);
  CHECK_THROWS_WITH_AS(group_sort(ones({4}, i64)), "group_sort: expects f32 or f64, got i64",
                       Error);
}

TEST_CASE("group_sort's Jacobian is a permutation: its norm is 1 everywhere") {
  Generator rng{3};
  for (int k = 0; k < 5; ++k) {
    const Tensor j =
        test::jacobian(randn({3, 4}, f64, rng), [](const Tensor& x) { return group_sort(x); });
    CHECK(largest_singular_value(12, 12, j.data<double>()) == doctest::Approx(1));
    for (const double entry : j.to_vector<double>()) CHECK((entry == 0 || entry == 1));
  }
}

}  // namespace lipgrad
