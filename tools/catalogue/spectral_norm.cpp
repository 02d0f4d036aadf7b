#include <lipgrad/ops/spectral_norm.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_spectral_norm(Catalogue& c) {
  for (const auto& [kind, shape] :
       std::vector<std::pair<const char*, Shape>>{{"normal", {3, 5}},
                                                  {"one row", {1, 8}},
                                                  {"tall", {9, 4}},
                                                  {"convolution", {4, 2, 3}},
                                                  {"large", {40, 50}}})
    c.add(
        "spectral_norm_of", kind,
        [shape = shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [](Inputs in) { return spectral_norm_of(in[0]); });
  c.add(
      "spectral_norm_of", "empty",
      [](Generator& rng) {
        return std::vector<Tensor>{randn({0, 4}, f64, rng)};
      },
      [](Inputs in) { return spectral_norm_of(in[0]); }, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
