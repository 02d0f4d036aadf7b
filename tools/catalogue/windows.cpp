#include <lipgrad/vision/windows.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_windows(Catalogue& c) {
  struct Size {
    const char* kind;
    Shape image;
    Window window;
  };
  const std::vector<Size> sizes{{"normal", {2, 4, 6, 3}, {2, 3, 1, 2}},
                                {"one row", {1, 2, 3, 5}, {2, 3}},
                                {"empty", {0, 4, 4, 2}, {2, 2, 1, 1}},
                                {"no shift", {2, 6, 4, 4}, {3, 2}},
                                {"large", {2, 14, 21, 20}, {7, 7, 3, 3}}};
  for (const Size& s : sizes) {
    const bool empty = s.image[0] == 0;
    const GradcheckOptions options{.zero_gradient = empty};
    c.add(
        "window_partition", s.kind,
        [=](Generator& rng) { return std::vector<Tensor>{randn(s.image, f64, rng)}; },
        [=](Inputs in) { return window_partition(in[0], s.window); }, options);
    const std::int64_t tokens = s.window.height * s.window.width;
    c.add(
        "window_reverse", s.kind,
        [=](Generator& rng) {
          const std::int64_t windows = s.image[0] * s.image[1] * s.image[2] / tokens;
          return std::vector<Tensor>{randn({windows, tokens, s.image[3]}, f64, rng)};
        },
        [=](Inputs in) { return window_reverse(in[0], s.image[1], s.image[2], s.window); },
        options);
  }
}

}  // namespace lipgrad::catalogue
