#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "catalogue/catalogue.h"

// Cases of a layer that takes one tensor.
namespace lipgrad::catalogue {

// A root with one layer.
template <class Layer>
struct Root : Module {
  Layer layer;
  template <class... Args>
  explicit Root(Args&&... args) : layer(*this, "layer", std::forward<Args>(args)...) {}
};

// make(): a shared Root; run(layer, x): the layer's result.
template <class Make, class Run>
void add_layer(Catalogue& c, const char* op, const char* kind, Shape x, Make make, Run run,
               GradcheckOptions options = {}) {
  Case one;
  one.op = op;
  one.kind = kind;
  one.options = options;
  one.make = [=](Generator& rng) {
    auto root = make();
    root->initialize(rng);
    root->to(f64);
    Instance instance;
    instance.inputs = {randn(x, f64, rng)};
    instance.fn = [root, run](Inputs in) { return std::vector<Tensor>{run(root->layer, in[0])}; };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

template <class Layer>
Tensor forward(const Layer& layer, const Tensor& x) {
  return layer.forward(x);
}

}  // namespace lipgrad::catalogue
