#include "catalogue/catalogue.h"

#include <cstdlib>

#include <doctest/doctest.h>

#include "catalogue/check.h"
#include "cuda/kernel_test.h"

namespace lipgrad {

TEST_CASE("the catalogue: the CPU's values and gradients, repeatable bits") {
  if (!test::with_cuda()) return;
  // Finite differences are left out where they would take many minutes and see nothing new.
  const bool gradients = !std::getenv("LIPGRAD_QUICK");
  for (const catalogue::Case& c : catalogue::all().cases()) {
    CAPTURE(c.op);
    CAPTURE(c.kind);
    for (const std::string& failure : catalogue::check(c, cuda_device(), gradients).failures)
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
