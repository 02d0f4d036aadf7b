#include <lipgrad/graph/identity_map.h>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/elementwise.h>

namespace lipgrad {

Tensor identity_map(const Tensor& weight, double beta) {
  check_same_kind("identity_map", {&weight});
  LIPGRAD_CHECK(beta > 0 && beta <= 1, "identity_map: beta must be above 0 and at most 1, got {}",
                beta);
  if (beta == 1) return weight;
  LIPGRAD_CHECK(weight.rank() == 2 && weight.size(0) == weight.size(1),
                "identity_map: expects a square matrix, got {}", weight.shape());
  const std::int64_t n = weight.size(0);
  Tensor identity = zeros(weight.shape(), weight.dtype());
  visit_float("identity_map", weight.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* x = identity.mutable_data<T>();
    for (std::int64_t i = 0; i < n; ++i) x[i * n + i] = static_cast<T>(1 - beta);
  });
  return add(mul(weight, beta), identity.to(weight.device()));
}

void check_identity_map(const char* layer, double beta, std::int64_t in, std::int64_t out) {
  LIPGRAD_CHECK(beta > 0 && beta <= 1, "{}: identity_map must be above 0 and at most 1, got {}",
                layer, beta);
  LIPGRAD_CHECK(beta == 1 || in == out,
                "{}: an identity map needs as many features in as out, got {} and {}", layer, in,
                out);
}

}  // namespace lipgrad
