#include <lipgrad/ops/shape.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

std::function<std::vector<Tensor>(Generator&)> normal(std::vector<Shape> shapes) {
  return [shapes](Generator& rng) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) inputs.push_back(randn(shape, f64, rng));
    return inputs;
  };
}

// Several outputs.
void add_split(Catalogue& c, const char* kind, Shape shape, std::vector<std::int64_t> sizes) {
  Case split;
  split.op = "split";
  split.kind = kind;
  split.make = [=](Generator& rng) {
    return Instance{{randn(shape, f64, rng)},
                    [sizes](Inputs in) { return lipgrad::split(in[0], sizes, 1); },
                    nullptr};
  };
  c.add(std::move(split));
}

}  // namespace

void add_shape(Catalogue& c) {
  using S = std::vector<Shape>;
  for (auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{{"normal", {3, 4, 5}},
                                                                        {"one row", {1, 4, 5}},
                                                                        {"empty", {3, 0, 5}},
                                                                        {"large", {2, 70, 90}}}) {
    const std::int64_t rows = shape[0], cols = shape[1];
    c.add("reshape", kind, normal({shape}), [=](Inputs in) {
      return reshape(in[0], {rows * cols, 5 * (shape[2] / 5)});
    });
    c.add("permute", kind, normal({shape}), [](Inputs in) { return permute(in[0], {2, 0, 1}); });
    c.add("slice", kind, normal({shape}), [](Inputs in) { return slice(in[0], 2, 1, -1); });
    c.add("concat", kind, normal({shape, shape, shape.with(1, 2)}), [](Inputs in) {
      return concat({in[0], in[1], in[2]}, 1);
    });
  }
  c.add("permute", "transposed planes", normal({{2, 33, 19}}),
        [](Inputs in) { return transpose(in[0]); });
  c.add("slice", "leading", normal({{5, 3}}), [](Inputs in) { return slice(in[0], 0, 1, 4); });
  c.add("slice", "nothing", normal({{5, 3}}), [](Inputs in) { return slice(in[0], 1, 2, 2); },
        {.zero_gradient = true});
  c.add("broadcast_to", "normal", normal({{3, 1, 2}}), [](Inputs in) {
    return broadcast_to(in[0], {4, 3, 5, 2});
  });
  c.add("broadcast_to", "one row", normal({{1, 4}}), [](Inputs in) {
    return broadcast_to(in[0], {3, 4});
  });
  c.add("broadcast_to", "empty", normal({{1, 0}}), [](Inputs in) {
    return broadcast_to(in[0], {3, 0});
  });
  c.add("stack", "normal", normal(S{{2, 3}, {2, 3}}), [](Inputs in) {
    return stack(std::vector<Tensor>{in[0], in[1]}, 1);
  });
  add_split(c, "normal", {3, 6, 2}, {1, 3, 0, 2});
  add_split(c, "one row", {1, 3}, {2, 1});
  add_split(c, "empty", {0, 3}, {2, 1});
}

}  // namespace lipgrad::catalogue
