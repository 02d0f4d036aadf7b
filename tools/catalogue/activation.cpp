#include <lipgrad/ops/activation.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_activation(Catalogue& c) {
  using F = std::function<Tensor(const Tensor&)>;
  const auto add = [&](const char* op, F f) {
    for (auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{
             {"normal", {3, 7}}, {"one row", {1, 5}}, {"empty", {0, 4}}, {"large", {40, 70}}})
      c.add(
          op, kind,
          [shape = shape](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
          [f](Inputs in) { return f(in[0]); });
  };
  add("relu", relu);
  add("leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); });
  add("elu", [](const Tensor& x) { return elu(x, 1.5); });
  add("gelu", gelu);
  add("gelu_tanh", gelu_tanh);
  add("silu", silu);
  add("sigmoid", sigmoid);
  add("tanh", tanh);
  add("softplus", [](const Tensor& x) { return softplus(x, 2); });
  const auto normal = [](Generator& rng) { return std::vector<Tensor>{randn({3, 7}, f64, rng)}; };
  c.add("leaky_relu", "negative slope", normal, [](Inputs in) { return leaky_relu(in[0], -0.5); });
  c.add("elu", "alpha 0", normal, [](Inputs in) { return elu(in[0], 0); });
}

}  // namespace lipgrad::catalogue
