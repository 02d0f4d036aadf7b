#include <lipgrad/ops/matmul.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

void add(Catalogue& c, const char* kind, Shape a, Shape b, MatmulOptions options = {},
         GradcheckOptions check = {}) {
  c.add(
      "matmul", kind,
      [a, b](Generator& rng) {
        return std::vector<Tensor>{randn(a, f64, rng), randn(b, f64, rng)};
      },
      [options](Inputs in) { return matmul(in[0], in[1], options); }, check);
}

}  // namespace

void add_matmul(Catalogue& c) {
  add(c, "normal", {4, 4}, {4, 4});  // of one shape, so that one tensor can be both
  add(c, "transposed a", {3, 5}, {3, 4}, {.transpose_a = true});
  add(c, "transposed b", {5, 3}, {4, 3}, {.transpose_b = true});
  add(c, "both transposed", {3, 5}, {4, 3}, {true, true});
  add(c, "batch", {2, 3, 4}, {2, 4, 5});
  add(c, "batch, transposed", {2, 4, 3}, {2, 5, 4}, {true, true});
  add(c, "shared b", {3, 2, 4}, {4, 5});
  add(c, "shared b, transposed", {3, 2, 4}, {5, 4}, {.transpose_b = true});
  add(c, "shared b, transposed a", {3, 4, 2}, {4, 5}, {.transpose_a = true});
  add(c, "shared a", {2, 4}, {3, 4, 5});
  add(c, "broadcast batch", {2, 1, 3, 4}, {5, 4, 2});
  add(c, "long inner size", {6, 3000}, {3000, 5});
  add(c, "one row", {1, 4}, {4, 3});
  add(c, "empty", {0, 4}, {4, 3}, {}, {.zero_gradient = true});
  add(c, "empty inner size", {3, 0}, {0, 2}, {}, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
