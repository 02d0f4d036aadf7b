#include <lipgrad/ops/conv2d.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_conv2d(Catalogue& c) {
  const auto add = [&](const char* kind, Shape x, Shape weight, Conv2dOptions conv,
                       bool bias = true, GradcheckOptions options = {}) {
    c.add(
        "conv2d", kind,
        [=](Generator& rng) {
          std::vector<Tensor> in{randn(x, f64, rng), randn(weight, f64, rng)};
          if (bias) in.push_back(randn({weight[0]}, f64, rng));
          return in;
        },
        [=](Inputs in) { return conv2d(in[0], in[1], bias ? in[2] : Tensor(), conv); }, options);
  };
  add("normal", {2, 4, 5, 3}, {4, 3, 3, 3}, {.padding = 1});
  add("one row", {1, 1, 4, 2}, {3, 2, 1, 3}, {.padding = {0, 1}});
  add("empty", {0, 4, 4, 2}, {3, 2, 3, 3}, {}, true, {.zero_gradient = true});
  add("strides and padding", {2, 7, 6, 2}, {3, 2, 3, 2}, {.stride = {2, 3}, .padding = {2, 1}});
  add("padding wider than the kernel", {1, 3, 3, 2}, {2, 2, 2, 2}, {.padding = 3});
  add("stride beyond the kernel", {1, 7, 8, 2}, {2, 2, 2, 1}, {.stride = 3});
  add("groups", {2, 4, 4, 6}, {4, 3, 3, 3}, {.padding = 1, .groups = 2});
  add("1 x 1", {2, 3, 4, 5}, {3, 5, 1, 1}, {}, false);
  add("1 x 1 with stride", {2, 5, 4, 3}, {3, 3, 1, 1}, {.stride = 2});
  add("patches", {2, 4, 6, 3}, {5, 3, 2, 3}, {.stride = {2, 3}});
  add("patches that leave pixels", {1, 5, 7, 3}, {5, 3, 2, 3}, {.stride = {2, 3}});
  add("several blocks", {2, 40, 36, 12}, {4, 12, 7, 7}, {.padding = 3});
  add("blocks of rows", {1, 64, 70, 10}, {3, 10, 7, 7}, {.stride = {2, 1}, .padding = 3});
  add("depth-wise", {2, 5, 6, 3}, {3, 1, 3, 3}, {.padding = 1, .groups = 3});
  add("depth-wise 7 x 7", {2, 9, 8, 5}, {5, 1, 7, 7}, {.padding = 3, .groups = 5}, false);
  add("depth-wise 5 x 5 without padding", {2, 9, 11, 4}, {4, 1, 5, 5}, {.groups = 4});
  add("depth-wise with strides", {2, 7, 9, 3}, {3, 1, 3, 3},
      {.stride = {2, 3}, .padding = {1, 2}, .groups = 3});
  add("depth-wise 2 x 4", {2, 6, 7, 3}, {3, 1, 2, 4}, {.padding = {1, 3}, .groups = 3});
  add("depth-wise, padding wider than the kernel", {1, 4, 4, 2}, {2, 1, 3, 3},
      {.padding = 4, .groups = 2});
  add("depth-wise, empty", {0, 5, 6, 3}, {3, 1, 3, 3}, {.padding = 1, .groups = 3}, true,
      {.zero_gradient = true});
  add("depth-wise, large", {3, 28, 28, 40}, {40, 1, 7, 7}, {.padding = 3, .groups = 40});
}

}  // namespace lipgrad::catalogue
