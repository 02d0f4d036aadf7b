#include "catalogue/catalogue.h"

#include <doctest/doctest.h>
#include <support/environment.h>

#include "catalogue/check.h"

namespace lipgrad {

TEST_CASE("the catalogue: gradients, f32 against f64, repeated inputs, threads") {
  const bool finite_differences = !test::quick();
  for (const catalogue::Case& c : catalogue::all().cases()) {
    CAPTURE(c.op);
    CAPTURE(c.kind);
    for (const std::string& failure : catalogue::check(c, cpu_device, finite_differences).failures)
      FAIL_CHECK(failure);
  }
}

}  // namespace lipgrad
