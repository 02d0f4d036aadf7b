#include <lipgrad/graph/gatv2_attention.h>
#include <lipgrad/graph/gatv2_conv.h>
#include <lipgrad/ops/index.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"
#include "catalogue/vector_norms.h"

namespace lipgrad::catalogue {
namespace {

// edge_features: of an edge; 0: there are none.
void add_attention(Catalogue& c, const std::string& kind, const Graph& graph, std::int64_t heads,
                   std::int64_t features, GatAttentionOptions options,
                   std::int64_t edge_features = 0, GradcheckOptions check = {}) {
  const std::int64_t nodes = graph.num_nodes(), edges = graph.num_edges(), width = heads * features;
  const bool loops = edge_features > 0 && options.self_loops;
  c.add(
      "gatv2_attention", kind,
      [=](Generator& rng) {
        std::vector<Tensor> inputs{randn({nodes, width}, f64, rng), randn({nodes, width}, f64, rng),
                                   randn({heads, features}, f64, rng),
                                   randn({options.mean_heads ? features : width}, f64, rng)};
        if (edge_features > 0) {
          inputs.push_back(randn({width, edge_features}, f64, rng));
          inputs.push_back(randn({edges, edge_features}, f64, rng));
        }
        if (loops) inputs.push_back(randn({nodes, edge_features}, f64, rng));
        return inputs;
      },
      [=](Inputs in) {
        Generator rng{5};  // the same mask in every call
        EdgeFeatures edge;
        if (edge_features > 0) {
          edge.weight = in[4];
          edge.value = in[5];
        }
        if (loops) edge.loop = in[6];
        return gatv2_attention(graph.to(in[0].device()), in[0], in[1], in[2], in[3], options,
                               options.dropout > 0 ? Mode::train(rng) : Mode::eval(), edge);
      },
      check);
}

struct OneConv : Module {
  explicit OneConv(const Gatv2ConvOptions& options) : conv(*this, "conv", options) {}
  Gatv2Conv conv;
};

void add_conv(Catalogue& c, const char* kind, const Gatv2ConvOptions& options) {
  const Graph graph = graph_of(9, 20);
  Case one;
  one.op = "Gatv2Conv";
  one.kind = kind;
  one.make = [=](Generator& rng) {
    const auto module = std::make_shared<OneConv>(options);
    for (Parameter* p : module->parameters()) p->set_value(randn(p->shape(), f64, rng));
    std::vector<Tensor> inputs{randn({9, options.in}, f64, rng)};
    if (options.edge_features > 0)
      inputs.push_back(randn({graph.num_edges(), options.edge_features}, f64, rng));
    return Instance{
        inputs,
        [=](Inputs in) {
          return std::vector<Tensor>{module->conv.forward(
              graph.to(in[0].device()), in[0], in.size() > 1 ? in[1] : Tensor(), Mode::eval())};
        },
        module};
  };
  c.add(std::move(one));
}

}  // namespace

void add_gatv2(Catalogue& c) {
  add_attention(c, "normal", graph_of(9, 20), 2, 3, {});
  add_attention(c, "eight heads", graph_of(12, 30), 8, 8, {});
  add_attention(c, "dropout, mean of heads", graph_of(9, 30), 4, 3,
                {.dropout = 0.4, .mean_heads = true});
  add_attention(c, "zero rows", graph_of(9, 12), 1, 7, {.self_loops = false});
  add_attention(c, "one row", Graph(2, from_values<std::int64_t>({3, 2}, {0, 0, 1, 0, 1, 0})), 2, 3,
                {.self_loops = false});
  add_attention(c, "empty", graph_of(0, 0), 2, 3, {}, 0, {.zero_gradient = true});
  // Inputs of fewer than 2000 elements, which are moved one at a time: directions in more would
  // cross some of the thousands of kinks of LeakyReLU and of the maxima.
  add_attention(c, "large", graph_of(60, 300), 4, 8, {});
  add_attention(c, "features of edges", graph_of(9, 20), 2, 3, {}, 3);
  add_attention(c, "features of edges, four heads, dropout", graph_of(9, 20), 4, 8,
                {.dropout = 0.4}, 5);
  add_attention(c, "features of edges, no self-loops, mean of heads", graph_of(9, 20), 3, 5,
                {.self_loops = false, .mean_heads = true}, 2);
  add_attention(c, "features of edges, large", graph_of(60, 300), 4, 8, {}, 8);
  for (const auto& [name, norm] : vector_norms(false)) {
    GatAttentionOptions options{.norm = norm};
    add_attention(c, name, graph_of(9, 20), 2, 3, options);
    add_attention(c, name + ", large", graph_of(60, 300), 4, 8, options);
    options.dropout = 0.4;
    options.mean_heads = true;
    add_attention(c, name + ", features of edges, dropout, mean of heads", graph_of(9, 20), 3, 5,
                  options, 2);
    options.self_loops = false;
    add_attention(c, name + ", no self-loops", graph_of(9, 12), 1, 7, options);
  }

  add_conv(c, "normal", {.in = 4, .out = 3, .heads = 2, .dtype = f64});
  add_conv(
      c, "shared weights, features of edges",
      {.in = 4, .out = 3, .heads = 2, .share_weights = true, .edge_features = 2, .dtype = f64});
  add_conv(c, "identity map, LipschitzNorm",
           {.in = 6,
            .out = 3,
            .heads = 2,
            .norm = LipschitzNorm{.eps = 1e-2},
            .identity_map = 0.3,
            .dtype = f64});
  add_conv(c, "a given Lipschitz constant",
           {.in = 5,
            .out = 3,
            .heads = 2,
            .norm = LipschitzNorm{.kappa = 0.5, .eps = 1e-2, .target_lipschitz = 2},
            .dtype = f64});

  for (const auto& [kind, nodes, edges] : std::vector<std::tuple<const char*, int, int>>{
           {"normal", 9, 20}, {"one row", 1, 4}, {"empty", 0, 0}}) {
    const Graph graph = graph_of(nodes, edges);
    c.add(
        "loop_features", kind,
        [=](Generator& rng) {
          return std::vector<Tensor>{randn({graph.num_edges(), 2}, f64, rng)};
        },
        [=](Inputs in) { return loop_features(graph.to(in[0].device()), in[0]); },
        {.zero_gradient = nodes < 2});
  }
}

}  // namespace lipgrad::catalogue
