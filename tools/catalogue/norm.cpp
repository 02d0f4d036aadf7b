#include <lipgrad/ops/norm.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

void add_norm(Catalogue& c) {
  struct Kind {
    const char* name;
    Shape shape;
    GradcheckOptions options = {};
  };
  const double eps = 1e-2;
  for (const Kind& k : std::vector<Kind>{{"normal", {3, 6}},
                                         {"three dimensions", {2, 3, 5}},
                                         {"zero rows", {3, 6}},
                                         {"one row", {1, 7}},
                                         {"empty", {0, 4}, {.zero_gradient = true}},
                                         {"large", {70, 40}}}) {
    const auto inputs = [k](int vectors) {
      return [k, vectors](Generator& rng) {
        std::vector<Tensor> in{randn(k.shape, f64, rng)};
        if (std::string_view(k.name) == "zero rows")
          for (int i = 6; i < 12; ++i) in[0].mutable_data<double>()[i] = 0;
        for (int i = 0; i < vectors; ++i)
          in.push_back(randn({k.shape[k.shape.rank() - 1]}, f64, rng));
        return in;
      };
    };
    c.add(
        "layer_norm", k.name, inputs(2),
        [=](Inputs in) { return layer_norm(in[0], in[1], in[2], eps); }, k.options);
    c.add(
        "rms_norm", k.name, inputs(1), [=](Inputs in) { return rms_norm(in[0], in[1], eps); },
        k.options);
    c.add(
        "center_norm", k.name, inputs(2),
        [=](Inputs in) { return center_norm(in[0], in[1], in[2]); }, k.options);
    c.add(
        "l2_normalize", k.name, inputs(0), [=](Inputs in) { return l2_normalize(in[0], -1, eps); },
        k.options);
    if (std::string_view(k.name) != "normal") continue;
    c.add("layer_norm", "plain", inputs(0),
          [=](Inputs in) { return layer_norm(in[0], {}, {}, eps); });
    c.add("layer_norm", "no bias", inputs(1),
          [=](Inputs in) { return layer_norm(in[0], in[1], {}, eps); });
    c.add("rms_norm", "plain", inputs(0), [=](Inputs in) { return rms_norm(in[0], {}, eps); });
    c.add("center_norm", "plain", inputs(0), [=](Inputs in) { return center_norm(in[0]); });
    c.add("center_norm", "no bias", inputs(1),
          [=](Inputs in) { return center_norm(in[0], in[1]); });
    c.add("l2_normalize", "first dimension", inputs(0),
          [=](Inputs in) { return l2_normalize(in[0], 0, eps); });
  }
}

}  // namespace lipgrad::catalogue
