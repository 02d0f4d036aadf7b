#include <lipgrad/graph/gated_graph_conv.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {
namespace {

struct Root : Module {
  explicit Root(const GatedGraphConvOptions& options) : conv(*this, "conv", options) {}
  GatedGraphConv conv;
};

void add(Catalogue& c, const char* kind, const Graph& graph, GatedGraphConvOptions options,
         GradcheckOptions check = {}) {
  options.dtype = f64;
  Case one;
  one.op = "GatedGraphConv";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<Root>(options);
    root->initialize(rng);
    Instance instance;
    instance.inputs = {randn({graph.num_nodes(), options.in}, f64, rng)};
    instance.fn = [=](Inputs in) {
      return std::vector<Tensor>{root->conv.forward(graph.to(in[0].device()), in[0], Mode::eval())};
    };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

}  // namespace

void add_gated_graph_conv(Catalogue& c) {
  const Graph graph = graph_of(9, 12);
  add(c, "normal", graph, {.in = 4, .out = 4});
  add(c, "padded, three steps", graph, {.in = 2, .out = 4, .steps = 3});
  add(c, "shared weight, no bias", graph,
      {.in = 3, .out = 3, .steps = 2, .share_weight = true, .bias = false});
  add(c, "one row", Graph(1, from_values<std::int64_t>({1, 2}, {0, 0})), {.in = 4, .out = 4});
  add(c, "empty", Graph(), {.in = 4, .out = 4}, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
