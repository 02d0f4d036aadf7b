#include <lipgrad/graph/gat_attention.h>
#include <lipgrad/graph/gat_conv.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"
#include "catalogue/vector_norms.h"

namespace lipgrad::catalogue {
namespace {

void add_attention(Catalogue& c, const char* kind, const Graph& graph, std::int64_t heads,
                   std::int64_t features, GatAttentionOptions options, bool biased = true,
                   GradcheckOptions check = {}) {
  const std::int64_t nodes = graph.num_nodes();
  c.add(
      "gat_attention", kind,
      [=](Generator& rng) {
        std::vector<Tensor> inputs{randn({nodes, heads * features}, f64, rng),
                                   randn({heads, features}, f64, rng),
                                   randn({heads, features}, f64, rng)};
        if (biased) {
          const std::int64_t width = options.mean_heads ? features : heads * features;
          inputs.push_back(randn({width}, f64, rng));
        }
        return inputs;
      },
      [=](Inputs in) {
        Generator rng{5};  // the same mask in every call
        return gat_attention(graph.to(in[0].device()), in[0], in[1], in[2],
                             in.size() > 3 ? in[3] : Tensor(), options,
                             options.dropout > 0 ? Mode::train(rng) : Mode::eval());
      },
      check);
}

struct OneConv : Module {
  explicit OneConv(const GatConvOptions& options) : conv(*this, "conv", options) {}
  GatConv conv;
};

}  // namespace

void add_gat(Catalogue& c) {
  add_attention(c, "normal", graph_of(9, 20), 2, 3, {});
  add_attention(c, "concatenated, eight heads", graph_of(12, 30), 8, 8, {}, false);
  add_attention(c, "mean of heads", graph_of(9, 20), 3, 5, {.mean_heads = true});
  add_attention(c, "dropout", graph_of(9, 30), 4, 3, {.dropout = 0.4});
  add_attention(c, "dropout, mean of heads", graph_of(9, 30), 4, 3,
                {.dropout = 0.4, .mean_heads = true});
  add_attention(c, "zero rows", graph_of(9, 12), 1, 7, {.self_loops = false},
                false);  // nodes 3 and 7
  add_attention(c, "slope 0", graph_of(9, 20), 2, 3, {.negative_slope = 0});
  // One node with edges, another without. (A single edge has no gradient through its weight.)
  add_attention(c, "one row", Graph(2, from_values<std::int64_t>({3, 2}, {0, 0, 1, 0, 1, 0})), 2, 3,
                {.self_loops = false});
  add_attention(c, "empty", graph_of(0, 0), 2, 3, {}, true, {.zero_gradient = true});
  add_attention(c, "large", graph_of(300, 2000), 4, 8, {});
  for (const auto& [name, norm] : vector_norms(true)) {
    const auto kind = [&](const char* what) { return name + ", " + what; };
    const GatAttentionOptions plain{.norm = norm};
    GatAttentionOptions dropped = plain, bare = plain, averaged = plain;
    dropped.dropout = 0.4;
    bare.self_loops = false;
    averaged.mean_heads = true;
    add_attention(c, name.c_str(), graph_of(9, 20), 2, 3, plain);
    add_attention(c, kind("dropout, four heads").c_str(), graph_of(9, 30), 4, 8, dropped);
    add_attention(c, kind("mean of heads").c_str(), graph_of(9, 20), 3, 5, averaged);
    add_attention(c, kind("no self-loops").c_str(), graph_of(9, 12), 1, 7, bare, false);
    add_attention(c, kind("large").c_str(), graph_of(300, 2000), 4, 8, plain);
    add_attention(c, kind("empty").c_str(), graph_of(0, 0), 2, 3, plain, true,
                  {.zero_gradient = true});
  }

  const Graph graph = graph_of(9, 20);
  add_module<OneConv>(
      c, "GatConv", "normal",
      [] {
        return std::make_shared<OneConv>(
            GatConvOptions{.in = 4, .out = 3, .heads = 2, .dtype = f64});
      },
      4,
      [=](OneConv& m, const Tensor& x) {
        return m.conv.forward(graph.to(x.device()), x, Mode::eval());
      });
  add_module<OneConv>(
      c, "GatConv", "identity map, LipschitzNorm",
      [] {
        return std::make_shared<OneConv>(GatConvOptions{.in = 6,
                                                        .out = 3,
                                                        .heads = 2,
                                                        .norm = LipschitzNorm{},
                                                        .identity_map = 0.3,
                                                        .dtype = f64});
      },
      6,
      [=](OneConv& m, const Tensor& x) {
        return m.conv.forward(graph.to(x.device()), x, Mode::eval());
      });
  add_module<OneConv>(
      c, "GatConv", "a given Lipschitz constant",
      [] {
        return std::make_shared<OneConv>(
            GatConvOptions{.in = 5,
                           .out = 3,
                           .heads = 2,
                           .norm = LipschitzNorm{.kappa = 0.5, .eps = 0.3, .target_lipschitz = 2},
                           .dtype = f64});
      },
      5,
      [=](OneConv& m, const Tensor& x) {
        return m.conv.forward(graph.to(x.device()), x, Mode::eval());
      });
}

}  // namespace lipgrad::catalogue
