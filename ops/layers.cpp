#include <lipgrad/ops/layers.h>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/init.h>

namespace lipgrad {
namespace {

Initializer either(const Initializer& given, Initializer usual) { return given ? given : usual; }

std::int64_t checked(const char* layer, const char* what, std::int64_t size) {
  LIPGRAD_CHECK(size >= 1, "{}: {} must be at least 1, got {}", layer, what, size);
  return size;
}

}  // namespace

Linear::Linear(Module& parent, std::string name, std::int64_t in, std::int64_t out,
               const LinearLayerOptions& options)
    : Module(parent, std::move(name)),
      weight(*this, "weight", {checked("Linear", "out", out), checked("Linear", "in", in)},
             either(options.weight_initializer, init::fan_uniform(in)), options.dtype),
      options_{options.activation, options.parameter} {
  if (options.bias)
    bias.emplace(*this, "bias", Shape{out}, either(options.bias_initializer, init::fan_uniform(in)),
                 options.dtype);
}

Tensor Linear::forward(const Tensor& x) const {
  const ModuleScope scope(path());
  return linear(x, weight, bias ? bias->value() : Tensor(), options_);
}

Tensor Linear::forward(const CsrMatrix& x) const {
  const ModuleScope scope(path());
  return linear(x, weight, bias ? bias->value() : Tensor(), options_);
}

}  // namespace lipgrad
