#include <lipgrad/graph/dot_attention.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {
namespace {

void add_attention(Catalogue& c, const char* kind, const Graph& graph, std::int64_t heads,
                   std::int64_t features, DotAttentionOptions options, bool scaled = false,
                   std::int64_t edge_features = 0, GradcheckOptions check = {}) {
  const std::int64_t nodes = graph.num_nodes(), edges = graph.num_edges();
  Case one;
  one.op = "dot_attention";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(randn({nodes, heads, features}, f64, rng));
    if (scaled) inputs.push_back(randn({nodes, heads}, f64, rng));
    if (edge_features > 0) {
      inputs.push_back(randn({nodes, heads, edge_features}, f64, rng));
      inputs.push_back(randn({edges, edge_features}, f64, rng));
    }
    return Instance{inputs,
                    [=](Inputs in) {
                      Generator rng{5};  // the same mask in every call
                      const Mode mode = options.dropout > 0 ? Mode::train(rng) : Mode::eval();
                      const Graph here = graph.to(in[0].device());
                      const Tensor scale = scaled ? in[3] : Tensor();
                      if (edge_features == 0)
                        return std::vector<Tensor>{
                            dot_attention(here, in[0], in[1], in[2], scale, options, mode)};
                      const std::size_t at = scaled ? 4 : 3;
                      const EdgeAttention y = dot_attention(here, in[0], in[1], in[2], scale,
                                                            in[at], in[at + 1], options, mode);
                      return std::vector<Tensor>{y.out, y.edge_sum};
                    },
                    nullptr};
  };
  c.add(std::move(one));
}

}  // namespace

void add_dot_attention(Catalogue& c) {
  add_attention(c, "normal", graph_of(9, 20), 2, 3, {});
  add_attention(c, "scaled", graph_of(9, 20), 2, 3, {.factor = 0.7}, true);
  add_attention(c, "self-loops, eight heads", graph_of(12, 30), 8, 8, {.self_loops = true}, true);
  add_attention(c, "mean of heads", graph_of(9, 20), 3, 5, {.mean_heads = true}, true);
  add_attention(c, "dropout", graph_of(9, 30), 4, 3, {.self_loops = true, .dropout = 0.4});
  add_attention(c, "dropout, mean of heads", graph_of(9, 30), 4, 3,
                {.dropout = 0.4, .mean_heads = true}, true);
  add_attention(c, "zero rows", graph_of(9, 12), 1, 7, {});  // nodes 3 and 7
  // One node with edges, another without.
  add_attention(c, "one row", Graph(2, from_values<std::int64_t>({3, 2}, {0, 0, 1, 0, 1, 0})), 2, 3,
                {}, true, 2);
  add_attention(c, "empty", graph_of(0, 0), 2, 3, {}, true, 0, {.zero_gradient = true});
  add_attention(c, "large", graph_of(300, 2000), 4, 8, {}, true);
  add_attention(c, "edge features", graph_of(9, 20), 2, 3, {}, true, 5);
  add_attention(c, "edge features, dropout, mean of heads", graph_of(9, 30), 3, 4,
                {.self_loops = true, .dropout = 0.4, .mean_heads = true}, true, 3);
  add_attention(c, "edge features, one head", graph_of(9, 12), 1, 7, {}, false, 1);
  add_attention(c, "edge features, large", graph_of(300, 2000), 4, 8, {.self_loops = true}, true,
                8);
}

}  // namespace lipgrad::catalogue
