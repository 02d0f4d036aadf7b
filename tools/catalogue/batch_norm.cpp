#include <lipgrad/ops/batch_norm.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

struct Root : Module {
  explicit Root(const BatchNormOptions& options) : norm(*this, "norm", 4, options) {}
  BatchNorm norm;
};

void add_layer(Catalogue& c, const char* kind, std::int64_t rows, bool train,
               GradcheckOptions check = {}) {
  Case one;
  one.op = "BatchNorm";
  one.kind = kind;
  one.options = check;
  one.make = [=](Generator& rng) {
    const auto root = std::make_shared<Root>(BatchNormOptions{.eps = 1e-2, .dtype = f64});
    root->initialize(rng);
    root->norm.running_mean.set_value(randn({4}, f64, rng));
    Instance instance;
    instance.inputs = {randn({rows, 4}, f64, rng)};
    instance.fn = [=](Inputs in) {
      Generator unused;
      return std::vector<Tensor>{
          root->norm.forward(in[0], train ? Mode::train(unused) : Mode::eval())};
    };
    instance.module = root;
    return instance;
  };
  c.add(std::move(one));
}

}  // namespace

void add_batch_norm(Catalogue& c) {
  // vectors: weight and bias, if wanted.
  const auto own = [&](const char* kind, Shape shape, int vectors, GradcheckOptions check = {}) {
    c.add(
        "batch_norm", kind,
        [=](Generator& rng) {
          std::vector<Tensor> in{randn(shape, f64, rng)};
          for (int i = 0; i < vectors; ++i) in.push_back(randn({shape[1]}, f64, rng));
          return in;
        },
        [](Inputs in) {
          return batch_norm(in[0], in.size() > 1 ? in[1] : Tensor(),
                            in.size() > 2 ? in[2] : Tensor(), 1e-2);
        },
        check);
  };
  own("normal", {5, 4}, 2);
  own("plain", {5, 4}, 0);
  own("no bias", {5, 4}, 1);
  own("one row", {1, 4}, 2, {.zero_gradient = true});
  own("empty", {0, 4}, 2, {.zero_gradient = true});
  own("no columns", {3, 0}, 2, {.zero_gradient = true});
  own("large", {300, 37}, 2);

  const auto fixed = [&](const char* kind, Shape shape, int vectors, GradcheckOptions check = {}) {
    c.add(
        "fixed_batch_norm", kind,
        [=](Generator& rng) {
          std::vector<Tensor> in{randn(shape, f64, rng)};
          for (int i = 0; i < vectors; ++i) in.push_back(randn({shape[1]}, f64, rng));
          return in;
        },
        [](Inputs in) {
          const std::int64_t cols = in[0].size(1);
          const auto constant = [&](double value) {
            return full({cols}, value, in[0].dtype(), in[0].device());
          };
          return fixed_batch_norm(in[0], constant(0.3), constant(2),
                                  in.size() > 1 ? in[1] : Tensor(),
                                  in.size() > 2 ? in[2] : Tensor(), 1e-2);
        },
        check);
  };
  fixed("normal", {5, 4}, 2);
  fixed("plain", {5, 4}, 0);
  fixed("one row", {1, 4}, 2);
  fixed("empty", {0, 4}, 2, {.zero_gradient = true});
  fixed("large", {300, 37}, 2);

  const auto graph = [&](const char* kind, Shape shape, std::vector<std::int64_t> offsets,
                         GradcheckOptions check = {}) {
    c.add(
        "graph_norm", kind,
        [=](Generator& rng) {
          std::vector<Tensor> in{randn(shape, f64, rng)};
          for (int i = 0; i < 3; ++i) in.push_back(randn({shape[1]}, f64, rng));
          return in;
        },
        [=](Inputs in) {
          const auto count = static_cast<std::int64_t>(offsets.size());
          return graph_norm(in[0], in[1], in[2], in[3],
                            count > 0 ? from_vector({count}, offsets) : Tensor(), 1e-2);
        },
        check);
  };
  graph("normal", {5, 4}, {});
  graph("several graphs", {9, 4}, {0, 2, 2, 3, 9});
  graph("one row", {1, 4}, {});
  graph("empty", {0, 4}, {}, {.zero_gradient = true});
  graph("large", {300, 37}, {0, 120, 300});

  add_layer(c, "normal", 5, true);
  add_layer(c, "evaluation", 5, false);
  add_layer(c, "one row", 1, false);
  add_layer(c, "empty", 0, false, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
