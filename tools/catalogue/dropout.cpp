#include <lipgrad/ops/dropout.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_dropout(Catalogue& c) {
  for (auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{{"normal", {6, 7}},
                                                                        {"one row", {1, 9}},
                                                                        {"empty", {0, 4}},
                                                                        {"no elements", {3, 0}},
                                                                        {"one dimension", {9}},
                                                                        {"large", {8, 70, 90}}})
    c.add(
        "drop_path", kind,
        [shape = shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [](Inputs in) {
          Generator rng{3};  // the same draw at every call: it keeps the first row, not the second
          return drop_path(in[0], 0.4, Mode::train(rng));
        });
  for (auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{
           {"normal", {3, 7}}, {"one row", {1, 9}}, {"empty", {0, 4}}, {"large", {100, 90}}})
    c.add(
        "dropout", kind,
        [shape = shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [](Inputs in) {
          Generator rng{3};  // the same draw at every call
          return dropout(in[0], 0.4, Mode::train(rng));
        });
}

}  // namespace lipgrad::catalogue
