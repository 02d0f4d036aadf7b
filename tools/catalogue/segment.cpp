#include <lipgrad/graph/segment.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_segment(Catalogue& c) {
  struct Kind {
    const char* name;
    std::vector<std::int64_t> offsets;
    Shape row;
    GradcheckOptions options = {};
  };
  const std::vector<Kind> kinds{{"normal", {0, 3, 4, 4, 9}, {3}},
                                {"one row", {0, 2}, {3}},
                                {"empty", {0, 0, 0}, {3}, {.zero_gradient = true}},
                                {"zero rows", {0, 0, 4, 4}, {2}},
                                {"no dimensions", {0, 3, 5}, {}},
                                {"several dimensions", {0, 4, 6, 6}, {2, 41}},
                                {"large", {0, 700, 701, 957, 1214, 2000}, {9}}};
  struct Op {
    const char* name;
    Tensor (*f)(const Tensor&, const Tensor&);
  };
  for (const Op& op : {Op{"segment_sum", segment_sum}, Op{"segment_mean", segment_mean},
                       Op{"segment_max", segment_max}, Op{"segment_logsumexp", segment_logsumexp}})
    for (const Kind& k : kinds)
      c.add(
          op.name, k.name,
          [k](Generator& rng) {
            return std::vector<Tensor>{randn(k.row.inserted(0, k.offsets.back()), f64, rng)};
          },
          [k, f = op.f](Inputs in) {
            const auto count = static_cast<std::int64_t>(k.offsets.size());
            return f(in[0], from_vector({count}, k.offsets).to(in[0].device()));
          },
          k.options);
}

}  // namespace lipgrad::catalogue
