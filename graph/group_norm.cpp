#include <lipgrad/graph/group_norm.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/reduce.h>
#include <lipgrad/ops/shape.h>
#include <lipgrad/ops/softmax.h>

namespace lipgrad {
namespace {

std::int64_t checked(std::int64_t features, std::int64_t groups) {
  LIPGRAD_CHECK(features >= 1 && groups >= 1,
                "DiffGroupNorm: features and groups must be at least 1, got {} and {}", features,
                groups);
  return features;
}

}  // namespace

DiffGroupNorm::DiffGroupNorm(Module& parent, std::string name, std::int64_t features,
                             const DiffGroupNormOptions& options)
    : Module(parent, std::move(name)),
      lin(*this, "lin", checked(features, options.groups), options.groups,
          {.bias = false, .dtype = options.dtype}),
      norm(*this, "norm", options.groups * features,
           {.eps = options.eps, .momentum = options.momentum, .dtype = options.dtype}),
      features_(features),
      options_(options) {}

Tensor DiffGroupNorm::forward(const Tensor& x, Mode mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.rank() == 2 && x.size(1) == features_,
                "DiffGroupNorm: made for nodes of {} features, got {}", features_, x.shape());
  const std::int64_t rows = x.size(0), groups = options_.groups;
  const Tensor share = softmax(lin.forward(x));
  const Tensor parts = mul(unsqueeze(share, 2), unsqueeze(x, 1));
  const Tensor normal = norm.forward(reshape(parts, {rows, groups * features_}), mode);
  return add(x, mul(sum(reshape(normal, {rows, groups, features_}), {1}), options_.lambda));
}

}  // namespace lipgrad
