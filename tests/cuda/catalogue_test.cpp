#include "catalogue/catalogue.h"

#include <doctest/doctest.h>
#include <support/environment.h>

#include "catalogue/check.h"
#include "cuda/kernel_test.h"

namespace lipgrad {

TEST_CASE("the catalogue: the CPU's values and gradients, repeatable bits") {
  if (!test::with_cuda()) return;
  const bool finite_differences = !test::quick();
  for (const catalogue::Case& c : catalogue::all().cases()) {
    CAPTURE(c.op);
    CAPTURE(c.kind);
    for (const std::string& failure :
         catalogue::check(c, cuda_device(), finite_differences).failures)
      FAIL_CHECK(failure);
  }
}

TEST_SUITE("small") {
  TEST_CASE("one case of every op on a CUDA device") {
    if (!test::with_cuda()) return;
    for (const catalogue::Case& c : catalogue::all().cases()) {
      if (c.kind != "normal") continue;
      CAPTURE(c.op);
      for (const std::string& failure : catalogue::check_once(c, cuda_device()).failures)
        FAIL_CHECK(failure);
    }
  }
}

}  // namespace lipgrad
