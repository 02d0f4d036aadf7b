#include <lipgrad/graph/graph_layer_norm.h>
#include <lipgrad/graph/pair_norm.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

void add_pair_norm(Catalogue& c, const char* kind, Shape shape, PairNormKind which,
                   GradcheckOptions check = {}) {
  const bool zeros = std::string_view(kind).starts_with("zero rows");
  c.add(
      "pair_norm", kind,
      [=](Generator& rng) {
        std::vector<Tensor> in{randn(shape, f64, rng)};
        if (zeros)  // all but the last row
          for (std::int64_t i = 0; i < in[0].numel() - shape[1]; ++i)
            in[0].mutable_data<double>()[i] = 0;
        return in;
      },
      [=](Inputs in) { return pair_norm(in[0], {.kind = which, .scale = 1.5, .eps = 1e-2}); },
      check);
}

struct Root : Module {
  explicit Root(const GraphLayerNormOptions& options) : norm(*this, "norm", 6, options) {}
  GraphLayerNorm norm;
};

void add_layer(Catalogue& c, const char* kind, Shape shape, GraphLayerNormOptions options = {},
               GradcheckOptions check = {}) {
  options.dtype = f64;
  Case one;
  one.op = "GraphLayerNorm";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<Root>(options);
    root->initialize(rng);
    Instance instance;
    instance.inputs = {randn(shape, f64, rng)};
    instance.fn = [root](Inputs in) { return std::vector<Tensor>{root->norm.forward(in[0])}; };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

}  // namespace

void add_graph_norm(Catalogue& c) {
  using K = PairNormKind;
  add_pair_norm(c, "normal", {5, 4}, K::pn);
  add_pair_norm(c, "individually", {5, 4}, K::pn_si);
  add_pair_norm(c, "simultaneously", {5, 4}, K::pn_scs);
  add_pair_norm(c, "zero rows", {4, 3}, K::pn);
  add_pair_norm(c, "zero rows, individually", {4, 3}, K::pn_si);
  add_pair_norm(c, "zero rows, simultaneously", {4, 3}, K::pn_scs);
  // A single node is its own mean.
  add_pair_norm(c, "one row", {1, 4}, K::pn, {.zero_gradient = true});
  add_pair_norm(c, "one row, individually", {1, 4}, K::pn_si, {.zero_gradient = true});
  add_pair_norm(c, "one row, simultaneously", {1, 4}, K::pn_scs);
  add_pair_norm(c, "empty", {0, 4}, K::pn, {.zero_gradient = true});
  add_pair_norm(c, "empty, individually", {0, 4}, K::pn_si, {.zero_gradient = true});
  add_pair_norm(c, "empty, simultaneously", {0, 4}, K::pn_scs, {.zero_gradient = true});
  add_pair_norm(c, "no columns", {3, 0}, K::pn, {.zero_gradient = true});
  add_pair_norm(c, "large", {300, 37}, K::pn);
  add_pair_norm(c, "large, individually", {300, 37}, K::pn_si);
  add_pair_norm(c, "large, simultaneously", {300, 37}, K::pn_scs);

  const auto add = [&](const char* kind, Shape shape, int vectors, GradcheckOptions check = {}) {
    c.add(
        "graph_layer_norm", kind,
        [=](Generator& rng) {
          std::vector<Tensor> in{randn(shape, f64, rng)};
          if (std::string_view(kind) == "zero rows")
            for (std::int64_t i = 0; i < in[0].numel() - shape[1]; ++i)
              in[0].mutable_data<double>()[i] = 0;
          for (int i = 0; i < vectors; ++i) in.push_back(randn({shape[1]}, f64, rng));
          return in;
        },
        [](Inputs in) {
          return graph_layer_norm(in[0], in.size() > 1 ? in[1] : Tensor(),
                                  in.size() > 2 ? in[2] : Tensor(), 1e-2);
        },
        check);
  };
  add("normal", {5, 4}, 2);
  add("plain", {5, 4}, 0);
  add("no bias", {5, 4}, 1);
  add("zero rows", {4, 3}, 2);
  add("one row", {1, 6}, 2);
  add("empty", {0, 4}, 2, {.zero_gradient = true});
  add("large", {300, 37}, 2);

  add_layer(c, "normal", {4, 6});
  add_layer(c, "not affine", {4, 6}, {.affine = false});
  add_layer(c, "one row", {1, 6});
  add_layer(c, "empty", {0, 6}, {}, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
