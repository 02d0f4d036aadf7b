#include <lipgrad/ops/reduce.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_reduce(Catalogue& c) {
  struct Kind {
    const char* name;
    Shape shape;
    std::vector<int> dims;
    bool keepdim = false;
  };
  const std::vector<Kind> kinds = {{"normal", {3, 4, 5}, {1}},
                                   {"last dimension", {3, 4, 5}, {2}},
                                   {"first dimension", {3, 4, 5}, {0}},
                                   {"two runs", {3, 4, 5}, {0, 2}},
                                   {"three runs", {2, 3, 2, 3, 2}, {4, 0, 2}, true},
                                   {"all", {3, 4}, {0, 1}},
                                   {"one row", {1, 5}, {1}},
                                   {"one element each", {4, 1, 3}, {1}},
                                   {"empty", {0, 4}, {1}},
                                   {"large", {70, 60}, {0}}};
  using F = Tensor (*)(const Tensor&, Dims, bool);
  const auto add = [&](const char* op, F f) {
    for (const Kind& k : kinds) {
      if (std::string_view(op) == "var" && std::string_view(k.name) == "one element each") continue;
      c.add(
          op, k.name, [k](Generator& rng) { return std::vector<Tensor>{randn(k.shape, f64, rng)}; },
          [k, f](Inputs in) { return f(in[0], k.dims, k.keepdim); });
    }
  };
  add("sum", sum);
  add("mean", mean);
  add("max", max);
  add("logsumexp", logsumexp);
  add("var", [](const Tensor& x, Dims dims, bool keepdim) { return var(x, dims, keepdim); });
  c.add(
      "sum", "nothing to add",
      [](Generator&) {
        return std::vector<Tensor>{zeros({3, 0}, f64)};
      },
      [](Inputs in) { return sum(in[0], {1}); });
}

}  // namespace lipgrad::catalogue
