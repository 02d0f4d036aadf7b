#include <lipgrad/models/gnn.h>

#include "catalogue/catalogue.h"
#include "catalogue/graphs.h"

namespace lipgrad::catalogue {

void add_gnn(Catalogue& c) {
  const Graph graph = graph_of(9, 24);
  Generator edge_rng{3};
  const Tensor edge_features = randn({graph.num_edges(), 2}, f64, edge_rng);
  const auto add = [&](const char* kind, GnnOptions options) {
    options.in = 4, options.out = 3, options.hidden = 3, options.dtype = f64;
    options.dropout = 0.3;
    // Layers that are computed again draw in backward: the generator lives on.
    const auto rng = std::make_shared<Generator>();
    add_module<Gnn>(
        c, "Gnn", kind, [options] { return std::make_shared<Gnn>(options); }, 4,
        [=](Gnn& m, const Tensor& x) {
          rng->restore(11, 0);
          const Tensor edges =
              options.edge_features > 0 ? edge_features.to(x.dtype()).to(x.device()) : Tensor();
          return m.forward(graph.to(x.device()), x, edges, Mode::train(*rng));
        });
  };
  add("normal", {.layers = 3, .heads = 2});
  GnnOptions options{.layers = 3,
                     .heads = 2,
                     .linear_ends = true,
                     .norm = {.kind = FeatureNormKind::pair_norm},
                     .residual = Residual::plain};
  add("linear ends, PairNorm, plain residual", options);
  // Recipe of depth: every part at once, for every kind of layer.
  options.norm.kind = FeatureNormKind::center_norm;
  options.residual = Residual::damped;
  options.attention_norm = LipschitzNorm{};
  options.initial_residual = 0.2;
  options.identity_map = 0.5;
  options.input_activation = options.last_activation = options.spectral_init = true;
  add("gat, all at once", options);
  options.checkpoint_layers = true;
  add("gat, layers computed again", options);
  options.checkpoint_layers = false;
  options.edge_features = 2;
  options.layer = GnnLayer::gatv2;
  add("gatv2, all at once", options);
  options.edge_features = 0;
  options.heads = 1;
  options.attention_norm = {};
  options.layer = GnnLayer::gcn;
  add("gcn, all at once", options);
  options.layer = GnnLayer::ggnn;
  options.identity_map = 0;
  add("ggnn, all at once", options);
}

}  // namespace lipgrad::catalogue
