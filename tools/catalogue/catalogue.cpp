#include "catalogue/catalogue.h"

#include "catalogue/families.h"

namespace lipgrad::catalogue {

void Catalogue::add(std::string op, std::string kind,
                    std::function<std::vector<Tensor>(Generator&)> inputs,
                    std::function<Tensor(Inputs)> fn, GradcheckOptions options) {
  Case c;
  c.op = std::move(op);
  c.kind = std::move(kind);
  c.options = options;
  c.make = [inputs = std::move(inputs), fn = std::move(fn)](Generator& rng) {
    return Instance{inputs(rng), [fn](Inputs in) { return std::vector<Tensor>{fn(in)}; }, nullptr};
  };
  add(std::move(c));
}

const Catalogue& all() {
  static const Catalogue catalogue = [] {
    Catalogue c;
    add_gat(c);
    add_graph_norm(c);
    add_layers(c);
    add_linear(c);
    add_matmul(c);
    add_recompute(c);
    add_residual(c);
    add_shape(c);
    add_spmm(c);
    add_elementwise(c);
    add_activation(c);
    add_reduce(c);
    add_softmax(c);
    add_norm(c);
    add_index(c);
    add_dropout(c);
    add_loss(c);
    return c;
  }();
  return catalogue;
}

}  // namespace lipgrad::catalogue
