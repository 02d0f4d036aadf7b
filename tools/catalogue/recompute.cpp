#include <lipgrad/core/recompute.h>

#include <lipgrad/ops/dropout.h>
#include <lipgrad/ops/elementwise.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// x^3 with some of it dropped: the replay in backward must drop the same.
Tensor cubed(const Tensor& x) {
  static thread_local Generator rng{1};
  rng.restore(1, 0);
  const auto cube = [](Inputs in) {
    return mul(square(in[0]), dropout(in[0], 0.3, Mode::train(rng)));
  };
  return checkpoint(cube, rng, x);
}

}  // namespace

void add_recompute(Catalogue& c) {
  using Shapes = std::vector<std::pair<const char*, Shape>>;
  for (const auto& [kind, size] :
       Shapes{{"normal", {3, 4}}, {"one row", {1, 4}}, {"empty", {0, 4}}})
    c.add(
        "checkpoint", kind,
        [shape = size](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [](Inputs in) { return cubed(in[0]); });
}

}  // namespace lipgrad::catalogue
