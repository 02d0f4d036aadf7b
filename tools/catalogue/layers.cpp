#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/layers.h>

#include "catalogue/one_layer.h"

namespace lipgrad::catalogue {
void add_layers(Catalogue& c) {
  const auto fc = [](LinearLayerOptions options) {
    return [options] { return std::make_shared<Root<Linear>>(4, 3, options); };
  };
  add_layer(c, "Linear", "normal", {5, 4}, fc({}), forward<Linear>);
  add_layer(c, "Linear", "no bias, gelu", {2, 3, 4},
            fc({.bias = false, .activation = Activation::gelu}), forward<Linear>);
  add_layer(c, "Linear", "one row", {1, 4}, fc({}), forward<Linear>);
  add_layer(c, "Linear", "empty", {0, 4}, fc({}), forward<Linear>, {.zero_gradient = true});

  const auto norm = [] { return std::make_shared<Root<LayerNorm>>(6); };
  add_layer(c, "LayerNorm", "normal", {3, 6}, norm, forward<LayerNorm>);
  add_layer(c, "LayerNorm", "one row", {1, 6}, norm, forward<LayerNorm>);
  add_layer(c, "LayerNorm", "empty", {0, 6}, norm, forward<LayerNorm>, {.zero_gradient = true});
  add_layer(
      c, "LayerNorm", "not affine", {2, 2, 6},
      [] { return std::make_shared<Root<LayerNorm>>(6, LayerNormOptions{.affine = false}); },
      forward<LayerNorm>);

  const auto centre = [] { return std::make_shared<Root<CenterNorm>>(6); };
  add_layer(c, "CenterNorm", "normal", {3, 6}, centre, forward<CenterNorm>);
  add_layer(c, "CenterNorm", "one row", {1, 6}, centre, forward<CenterNorm>);
  add_layer(c, "CenterNorm", "empty", {0, 6}, centre, forward<CenterNorm>, {.zero_gradient = true});
  add_layer(
      c, "CenterNorm", "not affine", {2, 2, 6},
      [] { return std::make_shared<Root<CenterNorm>>(6, CenterNormOptions{.affine = false}); },
      forward<CenterNorm>);

  const auto shortcut = [](const WeightedResidual& layer, const Tensor& x) {
    return layer.forward(x, tanh(x));
  };
  const auto residual = [](WeightedResidualOptions options) {
    return [options] { return std::make_shared<Root<WeightedResidual>>(5, options); };
  };
  add_layer(c, "WeightedResidual", "normal", {4, 5}, residual({.initial = 0.2}), shortcut);
  add_layer(c, "WeightedResidual", "damped", {4, 5}, residual({.initial = 0.2, .damped = true}),
            shortcut);
  add_layer(c, "WeightedResidual", "one row", {1, 5}, residual({}), shortcut);
  add_layer(c, "WeightedResidual", "empty", {0, 5}, residual({}), shortcut,
            {.zero_gradient = true});

  const auto drop = [](const Dropout& layer, const Tensor& x) {
    Generator rng{7};  // the same mask every time
    return layer.forward(x, Mode::train(rng));
  };
  const auto half = [] { return std::make_shared<Root<Dropout>>(0.5); };
  add_layer(c, "Dropout", "normal", {4, 5}, half, drop);
  add_layer(c, "Dropout", "one row", {1, 5}, half, drop);
  add_layer(c, "Dropout", "empty", {0, 5}, half, drop, {.zero_gradient = true});

  // The table is a parameter; x weights the rows, so that there is an input to differentiate.
  const auto weigh = [](const Embedding& layer, const Tensor& x) {
    const Tensor index = from_values<std::int64_t>({5}, {1, 0, 1, 2, 2}).to(x.device());
    return linear(x, layer.forward(index));
  };
  const auto words = [] { return std::make_shared<Root<Embedding>>(3, 4); };
  add_layer(c, "Embedding", "normal", {2, 4}, words, weigh);
  add_layer(c, "Embedding", "one row", {1, 4}, words, weigh);
  add_layer(c, "Embedding", "empty", {0, 4}, words, weigh, {.zero_gradient = true});

  const auto mlp = [] {
    auto root = std::make_shared<Root<Sequential>>();
    root->layer.template emplace_back<Linear>(4, 6);
    root->layer.then(tanh);
    root->layer.template emplace_back<Linear>(6, 2);
    return root;
  };
  const auto run = [](const Sequential& layer, const Tensor& x) {
    return layer.forward(x, Mode::eval());
  };
  add_layer(c, "Sequential", "normal", {3, 4}, mlp, run);
  add_layer(c, "Sequential", "one row", {1, 4}, mlp, run);
  add_layer(c, "Sequential", "empty", {0, 4}, mlp, run, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
