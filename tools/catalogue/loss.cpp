#include <lipgrad/ops/loss.h>

#include <limits>
#include <tuple>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

// cross_entropy with labels 0, 2, 4, ... modulo the classes.
void add_cross_entropy(Catalogue& c, const char* kind, std::int64_t rows, std::int64_t classes,
                       std::vector<std::int64_t> chosen, double smoothing, DType dtype = i64) {
  Tensor labels = zeros({rows}, i64);
  for (std::int64_t i = 0; i < rows; ++i) labels.mutable_data<std::int64_t>()[i] = 2 * i % classes;
  CrossEntropyOptions options{.label_smoothing = smoothing};
  if (!chosen.empty())
    options.rows = from_vector<std::int64_t>({std::int64_t(chosen.size())}, chosen);
  c.add(
      "cross_entropy", kind,
      [=](Generator& rng) {
        return std::vector<Tensor>{randn({rows, classes}, f64, rng)};
      },
      [=, labels = labels.to(dtype)](Inputs in) {
        CrossEntropyOptions here = options;
        if (here.rows.defined()) here.rows = here.rows.to(in[0].device());
        return cross_entropy(in[0], labels.to(in[0].device()), here);
      });
}

}  // namespace

void add_loss(Catalogue& c) {
  add_cross_entropy(c, "normal", 5, 4, {}, 0);
  add_cross_entropy(c, "one row", 1, 4, {}, 0, i32);
  add_cross_entropy(c, "chosen rows, one twice", 5, 4, {3, 0, 3}, 0);
  add_cross_entropy(c, "label smoothing", 5, 4, {1, 2}, 0.1, i32);
  add_cross_entropy(c, "large", 90, 30, {}, 0.1);
  // Probabilities and plain numbers as targets; both arguments have gradients.
  for (auto& [kind, shape] : std::vector<std::pair<const char*, Shape>>{
           {"normal", {3, 4}}, {"one row", {1, 5}}, {"large", {40, 70}}}) {
    const auto pair = [shape = shape](Generator& rng) {
      return std::vector<Tensor>{randn(shape, f64, rng), rand_uniform(shape, 0, 1, f64, rng)};
    };
    c.add("bce_with_logits", kind, pair, [](Inputs in) { return bce_with_logits(in[0], in[1]); });
    c.add("mse", kind, pair, [](Inputs in) { return mse(in[0], in[1]); });
    c.add("soft_cross_entropy", kind, pair,
          [](Inputs in) { return soft_cross_entropy(in[0], in[1]); });
  }
  // Chosen rows, and targets that are not known: those of NaN, whatever their value would be.
  for (auto& [kind, rows, cols, chosen, missing] : std::vector<
           std::tuple<const char*, std::int64_t, std::int64_t, std::vector<std::int64_t>, bool>>{
           {"chosen rows, one twice", 5, 4, {3, 0, 3}, false},
           {"missing targets", 4, 7, {}, true},
           {"missing targets of chosen rows", 40, 70, {1, 39, 7, 1}, true}}) {
    const Shape shape{rows, cols};
    Tensor list;
    if (!chosen.empty())
      list = from_vector<std::int64_t>({static_cast<std::int64_t>(chosen.size())}, chosen);
    Generator rng{11};
    Tensor targets = rand_uniform(shape, 0, 1, f64, rng);
    if (missing)
      for (std::int64_t i = 0; i < targets.numel(); i += 3)
        targets.mutable_data<double>()[i] = std::numeric_limits<double>::quiet_NaN();
    c.add(
        "bce_with_logits", kind,
        [=, missing = missing](Generator& draw) {
          std::vector<Tensor> inputs{randn(shape, f64, draw)};
          if (!missing) inputs.push_back(rand_uniform(shape, 0, 1, f64, draw));
          return inputs;
        },
        [=, missing = missing](Inputs in) {
          return bce_with_logits(in[0],
                                 missing ? targets.to(in[0].dtype()).to(in[0].device()) : in[1],
                                 {.rows = list.defined() ? list.to(in[0].device()) : Tensor(),
                                  .skip_missing = missing});
        });
  }
}

}  // namespace lipgrad::catalogue
