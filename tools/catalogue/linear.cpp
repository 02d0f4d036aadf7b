#include <lipgrad/ops/linear.h>
#include <lipgrad/ops/spmm.h>

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {
namespace {

void add_dense(Catalogue& c, const char* kind, Shape x, std::int64_t out, bool biased,
               LinearOptions options = {}, GradcheckOptions check = {}) {
  c.add(
      "linear", kind,
      [=](Generator& rng) {
        const std::int64_t in = x[x.rank() - 1];
        std::vector<Tensor> inputs{randn(x, f64, rng), randn({out, in}, f64, rng)};
        if (biased) inputs.push_back(randn({out}, f64, rng));
        return inputs;
      },
      [=](Inputs in) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), options); },
      check);
}

// Rows of 0 to 3 entries, a repeated column, an empty row and an empty column.
CsrPattern pattern_of(std::int64_t rows, std::int64_t cols) {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> columns;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < i % 4; ++k)
      columns.push_back(static_cast<std::int32_t>((2 * i + (k == 2 ? 0 : k)) % (cols - 1)));
    offsets.push_back(static_cast<std::int64_t>(columns.size()));
  }
  const auto nnz = static_cast<std::int64_t>(columns.size());
  return CsrPattern(rows, cols, from_vector({rows + 1}, offsets), from_vector({nnz}, columns));
}

// The values are an input like the others.
void add_sparse(Catalogue& c, const char* kind, std::int64_t rows, bool biased,
                LinearOptions options = {}, GradcheckOptions check = {}) {
  const CsrPattern pattern = pattern_of(rows, 5);
  c.add(
      "linear", kind,
      [=](Generator& rng) {
        std::vector<Tensor> inputs{randn({pattern.nnz()}, f64, rng), randn({3, 5}, f64, rng)};
        if (biased) inputs.push_back(randn({3}, f64, rng));
        return inputs;
      },
      [=](Inputs in) {
        return linear(CsrMatrix(pattern.to(in[0].device()), in[0]), in[1],
                      in.size() > 2 ? in[2] : Tensor(), options);
      },
      check);
}

void add_product(Catalogue& c, const char* kind, std::int64_t rows, std::int64_t cols,
                 std::int64_t features, GradcheckOptions options = {}) {
  const CsrPattern pattern = pattern_of(rows, cols);
  c.add(
      "spmm", kind,
      [=](Generator& rng) {
        return std::vector<Tensor>{randn({pattern.nnz()}, f64, rng),
                                   randn({cols, features}, f64, rng)};
      },
      [=](Inputs in) { return spmm(CsrMatrix(pattern.to(in[0].device()), in[0]), in[1]); },
      options);
}

}  // namespace

void add_linear(Catalogue& c) {
  add_dense(c, "normal", {4, 3}, 4, true);
  add_dense(c, "no bias", {2, 3, 4}, 5, false);
  add_dense(c, "relu", {4, 3}, 5, true, {Activation::relu});
  add_dense(c, "leaky_relu", {4, 3}, 5, true, {Activation::leaky_relu, 0.2});
  add_dense(c, "leaky_relu, negative slope", {4, 3}, 5, true, {Activation::leaky_relu, -0.5});
  add_dense(c, "elu", {4, 3}, 5, true, {Activation::elu, 1.5});
  add_dense(c, "gelu", {4, 3}, 5, true, {Activation::gelu});
  add_dense(c, "gelu_tanh", {4, 3}, 5, false, {Activation::gelu_tanh});
  add_dense(c, "silu", {4, 3}, 5, true, {Activation::silu});
  add_dense(c, "sigmoid", {4, 3}, 5, true, {Activation::sigmoid});
  add_dense(c, "tanh", {4, 3}, 5, true, {Activation::tanh});
  add_dense(c, "softplus", {4, 3}, 5, true, {Activation::softplus, 2.0});
  add_dense(c, "one row", {1, 3}, 2, true);
  add_dense(c, "empty", {0, 3}, 2, true, {}, {.zero_gradient = true});
  add_sparse(c, "sparse", 9, true);
  add_sparse(c, "sparse, no bias, relu", 9, false, {Activation::relu});
  add_sparse(c, "sparse, gelu", 9, true, {Activation::gelu});
  add_sparse(c, "sparse, empty", 0, true, {}, {.zero_gradient = true});

  add_product(c, "normal", 9, 6, 4);
  add_product(c, "zero rows", 1, 6, 4, {.zero_gradient = true});  // its one row has no entries
  add_product(c, "one row", 2, 6, 4);                             // one row with entries
  add_product(c, "empty", 0, 6, 4, {.zero_gradient = true});
  add_product(c, "no features", 9, 6, 0, {.zero_gradient = true});
}

}  // namespace lipgrad::catalogue
