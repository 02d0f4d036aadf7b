#include <lipgrad/ops/residual.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_residual(Catalogue& c) {
  const auto add = [&](const char* kind, Shape shape, Shape alpha, GradcheckOptions options = {}) {
    const auto inputs = [=](Generator& rng) {
      return std::vector<Tensor>{randn(shape, f64, rng), randn(shape, f64, rng),
                                 randn(alpha, f64, rng)};
    };
    c.add(
        "weighted_residual", kind, inputs,
        [](Inputs in) { return weighted_residual(in[0], in[1], in[2]); }, options);
    c.add(
        "damped_residual", kind, inputs,
        [](Inputs in) { return damped_residual(in[0], in[1], in[2]); }, options);
  };
  add("normal", {4, 5}, {5});
  add("scalar alpha", {3, 7}, {});
  add("three dimensions", {2, 3, 9}, {9});
  add("scalars", {}, {});
  add("one row", {1, 6}, {6});
  add("empty", {0, 4}, {4}, {.zero_gradient = true});
  add("no columns", {3, 0}, {0}, {.zero_gradient = true});
  add("large", {200, 33}, {33});
  add("large, scalar alpha", {300, 131}, {});
}

}  // namespace lipgrad::catalogue
