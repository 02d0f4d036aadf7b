#include <lipgrad/vision/relative_position.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

void add_window(Catalogue& c, const char* kind, std::int64_t height, std::int64_t width,
                std::int64_t heads, GradcheckOptions check = {}) {
  c.add(
      "relative_position_bias", kind,
      [=](Generator& rng) {
        return std::vector<Tensor>{randn({(2 * height - 1) * (2 * width - 1), heads}, f64, rng)};
      },
      [=](Inputs in) { return relative_position_bias(in[0], height, width); }, check);
}

}  // namespace

void add_relative_position(Catalogue& c) {
  add_window(c, "normal", 3, 4, 2);
  add_window(c, "one row", 1, 1, 3);
  add_window(c, "a row of tokens", 1, 5, 2);
  add_window(c, "empty", 2, 3, 0, {.zero_gradient = true});
  add_window(c, "large", 5, 4, 3);
}

}  // namespace lipgrad::catalogue
