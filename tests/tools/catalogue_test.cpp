#include "catalogue/catalogue.h"

#include <doctest/doctest.h>

#include "catalogue/check.h"

namespace lipgrad {

TEST_CASE("the catalogue: gradients, f32 against f64, repeated inputs, threads") {
  for (const catalogue::Case& c : catalogue::all().cases()) {
    CAPTURE(c.op);
    CAPTURE(c.kind);
    for (const std::string& failure : catalogue::check(c).failures) FAIL_CHECK(failure);
  }
}

}  // namespace lipgrad
