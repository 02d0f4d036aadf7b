#include <lipgrad/ops/gru_cell.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

struct Root : Module {
  Root(std::int64_t in, std::int64_t out, const GruCellOptions& options)
      : cell(*this, "cell", in, out, options) {}
  GruCell cell;
};

void add_cell(Catalogue& c, const char* kind, std::int64_t rows, bool bias,
              GradcheckOptions check = {}) {
  Case one;
  one.op = "GruCell";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<Root>(4, 3, GruCellOptions{.bias = bias, .dtype = f64});
    root->initialize(rng);
    Instance instance;
    instance.inputs = {randn({rows, 4}, f64, rng), randn({rows, 3}, f64, rng)};
    instance.fn = [root](Inputs in) {
      return std::vector<Tensor>{root->cell.forward(in[0], in[1])};
    };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

}  // namespace

void add_gru_cell(Catalogue& c) {
  const auto add = [&](const char* kind, std::int64_t rows, std::int64_t cols,
                       GradcheckOptions check = {}) {
    c.add(
        "gru_gates", kind,
        [=](Generator& rng) {
          return std::vector<Tensor>{randn({rows, 3 * cols}, f64, rng),
                                     randn({rows, 3 * cols}, f64, rng),
                                     randn({rows, cols}, f64, rng)};
        },
        [](Inputs in) { return gru_gates(in[0], in[1], in[2]); }, check);
  };
  add("normal", 4, 6);
  add("one row", 1, 5);
  add("one column", 7, 1);
  add("empty", 0, 4, {.zero_gradient = true});
  add("no columns", 3, 0, {.zero_gradient = true});
  add("large", 150, 37);
  add_cell(c, "normal", 5, true);
  add_cell(c, "no bias", 5, false);
  add_cell(c, "one row", 1, true);
  add_cell(c, "empty", 0, true, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
