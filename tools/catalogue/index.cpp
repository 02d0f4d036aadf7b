#include <lipgrad/ops/index.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// Indices below `rows`, some repeated, some missing.
Tensor index_of(const Shape& shape, std::int64_t rows, DType dtype) {
  Tensor index = zeros(shape, i64);
  for (std::int64_t i = 0; i < index.numel(); ++i)
    index.mutable_data<std::int64_t>()[i] = i * i * 7 % rows;
  return index.to(dtype);
}

}  // namespace

void add_index(Catalogue& c) {
  struct Kind {
    const char* name;
    Shape x, index;
    GradcheckOptions options = {};
  };
  const auto normal = [](Shape shape) {
    return [shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; };
  };
  for (const Kind& k : std::vector<Kind>{{"normal", {5, 3}, {7}},
                                         {"one row", {1, 3}, {4}},
                                         {"empty", {5, 3}, {0}, {.zero_gradient = true}},
                                         {"several dimensions", {4, 2, 3}, {2, 5}},
                                         {"large", {100, 30}, {300}}}) {
    c.add(
        "gather", k.name, normal(k.x),
        [k](Inputs in) { return gather(in[0], index_of(k.index, k.x[0], i64).to(in[0].device())); },
        k.options);
    c.add(
        "embedding", k.name, normal(k.x),
        [k](Inputs in) {
          return embedding(in[0], index_of(k.index, k.x[0], i32).to(in[0].device()));
        },
        k.options);
  }
  for (const Kind& k : std::vector<Kind>{{"normal", {7, 3}, {7}},
                                         {"one row", {1, 3}, {1}},
                                         {"empty", {0, 3}, {0}},
                                         {"several dimensions", {2, 5, 3}, {2, 5}},
                                         {"large", {300, 20}, {300}}})
    c.add(
        "scatter_add", k.name, normal(k.x),
        [k](Inputs in) {
          return scatter_add(in[0], index_of(k.index, 5, i64).to(in[0].device()), 6);
        },
        k.options);
  // Row 1 of the result gets nothing.
  c.add("scatter_add", "zero rows", normal({3, 2}), [](Inputs in) {
    return scatter_add(in[0], from_values<std::int64_t>({3}, {0, 2, 0}).to(in[0].device()), 3);
  });
}

}  // namespace lipgrad::catalogue
