#include <lipgrad/ops/softmax.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// Every third element masked out, and all of the second row of the leading dimension.
Tensor mask_of(const Shape& shape) {
  Tensor mask = ones(shape, u8);
  auto* m = mask.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < mask.numel(); ++i)
    if (i % 3 == 1 || i / shape.trailing(1) == 1) m[i] = 0;
  return mask;
}

}  // namespace

void add_softmax(Catalogue& c) {
  const auto normal = [](Shape shape) {
    return [shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; };
  };
  struct Kind {
    const char* name;
    Shape shape;
    int dim;
  };
  for (const Kind& k : std::vector<Kind>{{"normal", {3, 7}, -1},
                                         {"middle dimension", {3, 4, 5}, 1},
                                         {"first dimension", {4, 5}, 0},
                                         {"one row", {1, 9}, -1},
                                         {"empty", {0, 4}, -1},
                                         {"large", {40, 70}, -1}}) {
    c.add("softmax", k.name, normal(k.shape), [k](Inputs in) { return softmax(in[0], k.dim); });
    c.add("log_softmax", k.name, normal(k.shape),
          [k](Inputs in) { return log_softmax(in[0], k.dim); });
  }
  for (int dim : {-1, 1}) {
    const Shape shape{3, 4, 5};
    const char* kind = dim == 1 ? "masked, zero rows, middle dimension" : "zero rows";
    c.add("softmax", kind, normal(shape),
          [=](Inputs in) { return softmax(in[0], mask_of(shape).to(in[0].device()), dim); });
    // Entries of -inf would make every difference NaN: only rows that are all on or all off.
    Tensor mask = ones({3, 1, 1}, u8);
    mask.mutable_data<std::uint8_t>()[1] = 0;
    c.add("log_softmax", kind, normal(shape),
          [=](Inputs in) { return log_softmax(in[0], mask.to(in[0].device()), dim); });
  }
  // One entry cannot change: its gradient is 0.
  c.add("softmax", "one entry a row", normal({4, 1}), [](Inputs in) { return softmax(in[0]); },
        {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
