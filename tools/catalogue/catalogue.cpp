#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

// Those of the files beside this one, as the build has listed them.
#define FAMILY(add) void add(Catalogue& c);
#include <families.inc>
#undef FAMILY

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
#define FAMILY(add) add(c);
#include <families.inc>
#undef FAMILY
    return c;
  }();
  return catalogue;
}

}  // namespace lipgrad::catalogue
