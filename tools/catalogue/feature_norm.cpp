#include <lipgrad/graph/feature_norm.h>
#include <lipgrad/graph/node_norm.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// A norm of 4 features as a module, with random parameters.
struct Root : Module {
  explicit Root(FeatureNormKind kind)
      : norm(*this, "norm", 4, {.kind = kind, .groups = 3, .lambda = 0.7, .dtype = f64}) {}
  FeatureNorm norm;
};

// With an eps that a single row's gradient in f32 survives.
struct GraphNormRoot : Module {
  GraphNormRoot() : norm(*this, "norm", 4, {.eps = 1e-2, .dtype = f64}) {}
  GraphNorm norm;
};

void add_graph_norm_layer(Catalogue& c, const char* kind, std::int64_t rows,
                          GradcheckOptions check = {}) {
  Case one;
  one.op = "GraphNorm";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<GraphNormRoot>();
    for (Parameter* p : root->parameters()) p->set_value(randn(p->shape(), f64, rng));
    Instance instance;
    instance.inputs = {randn({rows, 4}, f64, rng)};
    instance.fn = [root](Inputs in) { return std::vector<Tensor>{root->norm.forward(in[0])}; };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

void add_layer(Catalogue& c, const char* op, const char* kind, FeatureNormKind which,
               std::int64_t rows, bool train, GradcheckOptions check = {}) {
  Case one;
  one.op = op;
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<Root>(which);
    root->initialize(rng);
    for (Parameter* p : root->parameters()) p->set_value(randn(p->shape(), f64, rng));
    Instance instance;
    instance.inputs = {randn({rows, 4}, f64, rng)};
    const bool entering = which == FeatureNormKind::message_norm;
    if (entering) instance.inputs.push_back(randn({rows, 3}, f64, rng));
    instance.fn = [=](Inputs in) {
      Generator unused;
      return std::vector<Tensor>{root->norm.forward(
          in[0], train ? Mode::train(unused) : Mode::eval(), entering ? in[1] : Tensor())};
    };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

}  // namespace

void add_feature_norm(Catalogue& c) {
  const auto rows_of = [&](const char* op, const char* kind, Shape shape, auto fn,
                           GradcheckOptions check = {}) {
    c.add(
        op, kind, [=](Generator& rng) { return std::vector<Tensor>{randn(shape, f64, rng)}; },
        [=](Inputs in) { return fn(in[0]); }, check);
  };
  for (const double p : {1.0, 2.0, 3.5}) {
    const auto f = [p](const Tensor& x) { return node_norm(x, p, 1e-2); };
    rows_of("node_norm", p == 2 ? "normal" : p == 1 ? "p = 1" : "p = 3.5", {5, 6}, f);
    if (p != 2) continue;
    rows_of("node_norm", "one row", {1, 6}, f);
    rows_of("node_norm", "one column", {5, 1}, f);
    rows_of("node_norm", "empty", {0, 6}, f, {.zero_gradient = true});
    rows_of("node_norm", "large", {60, 137}, f);
    rows_of("node_norm", "long rows", {2, 1100}, f);
  }
  const auto centre = [](const Tensor& x) { return mean_norm(x); };
  rows_of("mean_norm", "normal", {5, 4}, centre);
  rows_of("mean_norm", "one row", {1, 4}, centre, {.zero_gradient = true});
  rows_of("mean_norm", "empty", {0, 4}, centre, {.zero_gradient = true});
  for (const auto& [kind, rows] : std::vector<std::pair<const char*, std::int64_t>>{
           {"normal", 5}, {"one row", 1}, {"empty", 0}})
    c.add(
        "message_norm", kind,
        [rows = rows](Generator& rng) {
          return std::vector<Tensor>{randn({rows, 4}, f64, rng), randn({rows, 3}, f64, rng),
                                     randn({1}, f64, rng)};
        },
        [](Inputs in) { return message_norm(in[0], in[1], in[2]); }, {.zero_gradient = rows == 0});

  using K = FeatureNormKind;
  const GradcheckOptions zero{.zero_gradient = true};
  add_graph_norm_layer(c, "normal", 5);
  add_graph_norm_layer(c, "one row", 1);
  add_graph_norm_layer(c, "empty", 0, zero);
  add_layer(c, "MessageNorm", "normal", K::message_norm, 5, true);
  add_layer(c, "MessageNorm", "one row", K::message_norm, 1, true);
  add_layer(c, "MessageNorm", "empty", K::message_norm, 0, true, zero);
  add_layer(c, "DiffGroupNorm", "normal", K::group_norm, 6, true);
  add_layer(c, "DiffGroupNorm", "evaluation", K::group_norm, 6, false);
  add_layer(c, "DiffGroupNorm", "one row", K::group_norm, 1, false);
  add_layer(c, "DiffGroupNorm", "empty", K::group_norm, 0, false, zero);
}

}  // namespace lipgrad::catalogue
