#include <lipgrad/graph/transformer_conv.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {
namespace {

struct One : Module {
  explicit One(const TransformerConvOptions& options) : conv(*this, "conv", options) {}
  TransformerConv conv;
};

void add_conv(Catalogue& c, const char* kind, TransformerConvOptions options) {
  options.dtype = f64;
  const Graph graph = graph_of(9, 20);
  Case one;
  one.op = "TransformerConv";
  one.kind = kind;
  one.make = [=](Generator& rng) {
    const auto module = std::make_shared<One>(options);
    module->initialize(rng);
    std::vector<Tensor> inputs{randn({9, options.in}, f64, rng)};
    if (options.edge_features > 0)
      inputs.push_back(randn({graph.num_edges(), options.edge_features}, f64, rng));
    return Instance{inputs,
                    [=](Inputs in) {
                      Generator draws{5};  // the same mask in every call
                      return std::vector<Tensor>{module->conv.forward(
                          graph.to(in[0].device()), in[0], in.size() > 1 ? in[1] : Tensor(),
                          options.attention_dropout > 0 ? Mode::train(draws) : Mode::eval())};
                    },
                    module};
  };
  c.add(std::move(one));
}

}  // namespace

void add_transformer_conv(Catalogue& c) {
  // Without a norm the bias of keys adds the same to all scores of a node: no gradient.
  add_conv(c, "normal", {.in = 4, .out = 3, .heads = 2, .bias = false});
  add_conv(c, "gate, edge features, mean of heads",
           {.in = 4,
            .out = 3,
            .heads = 2,
            .concat = false,
            .beta = true,
            .edge_features = 3,
            .bias = false});
  add_conv(c, "edge features, LipschitzNorm of neighbourhoods",
           {.in = 4,
            .out = 3,
            .heads = 2,
            .self_loops = true,
            .edge_features = 3,
            .norm = LipschitzNorm{.scope = NormScope::neighbourhood, .target_lipschitz = 2}});
  add_conv(c, "identity map, LipschitzNorm",
           {.in = 6,
            .out = 3,
            .heads = 2,
            .self_loops = true,
            .attention_dropout = 0.3,
            .norm = LipschitzNorm{},
            .identity_map = 0.3});
}

}  // namespace lipgrad::catalogue
