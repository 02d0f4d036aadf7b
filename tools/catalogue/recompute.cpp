#include <lipgrad/core/map.h>
#include <lipgrad/core/recompute.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

struct Cube {
  static constexpr auto name = "cube";
  Tensor forward(Ctx& ctx, Inputs in) const {
    ctx.save(in[0]);
    return map(name, in[0], [](auto x) { return x * x * x; });
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = map(name, ctx.saved(0), gy, [](auto x, auto g) { return 3 * x * x * g; });
  }
};

Tensor twice_cubed(const Tensor& x) {
  static thread_local Generator rng{1};
  return checkpoint([](Inputs in) { return apply(Cube{}, apply(Cube{}, in[0])); }, rng, x);
}

}  // namespace

void add_recompute(Catalogue& c) {
  for (auto [kind, shape] :
       {std::pair<const char*, Shape>{"normal", {3, 4}}, {"one row", {1, 4}}, {"empty", {0, 4}}})
    c.add(
        "checkpoint", kind,
        [shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [](Inputs in) { return twice_cubed(in[0]); });
}

}  // namespace lipgrad::catalogue
