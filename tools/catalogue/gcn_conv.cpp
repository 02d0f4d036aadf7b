#include <lipgrad/graph/gcn_conv.h>
#include <lipgrad/ops/shape.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {
namespace {

struct Root : Module {
  explicit Root(const GcnConvOptions& options) : conv(*this, "conv", options) {}
  GcnConv conv;
};

void add(Catalogue& c, const char* kind, const Graph& graph, GcnConvOptions options,
         bool sparse = false, GradcheckOptions check = {}) {
  options.dtype = f64;
  Case one;
  one.op = "GcnConv";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<Root>(options);
    for (Parameter* p : root->parameters()) p->set_value(randn(p->shape(), f64, rng));
    Instance instance;
    instance.inputs = {randn({graph.num_nodes(), options.in}, f64, rng)};
    instance.fn = [=](Inputs in) {
      const Graph here = graph.to(in[0].device());
      if (!sparse) return std::vector<Tensor>{root->conv.forward(here, in[0], Mode::eval())};
      // The values of a sparse matrix that holds every element.
      const Tensor x = in[0];
      const CsrPattern all = CsrMatrix::from_dense(ones(x.shape(), f64)).pattern();
      const CsrMatrix values(all.to(x.device()), reshape(x, {x.numel()}));
      return std::vector<Tensor>{root->conv.forward(here, values, Mode::eval())};
    };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

}  // namespace

void add_gcn_conv(Catalogue& c) {
  const Graph graph = graph_of(9, 12);
  add(c, "normal", graph, {.in = 4, .out = 3});
  add(c, "wider", graph, {.in = 2, .out = 5});
  add(c, "sparse", graph, {.in = 4, .out = 3}, true);
  add(c, "no self-loops, no bias", graph, {.in = 3, .out = 3, .self_loops = false, .bias = false});
  add(c, "identity map", graph, {.in = 4, .out = 4, .identity_map = 0.3});
  add(c, "one row", Graph(1, from_values<std::int64_t>({0, 2}, {})), {.in = 4, .out = 3});
  add(c, "empty", Graph(), {.in = 4, .out = 3}, false, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
