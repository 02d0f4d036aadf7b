#include <lipgrad/ops/group_sort.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_group_sort(Catalogue& c) {
  for (const auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{{"normal", {3, 4, 6}},
                                                                              {"one row", {1, 8}},
                                                                              {"one pair", {2}},
                                                                              {"empty", {0, 4}},
                                                                              {"large", {70, 90}}})
    c.add(
        "group_sort", kind,
        [shape = shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [](Inputs in) { return group_sort(in[0]); });
}

}  // namespace lipgrad::catalogue
