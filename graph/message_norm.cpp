#include <lipgrad/graph/message_norm.h>

#include <cmath>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/ops/norm.h>
#include <lipgrad/ops/reduce.h>

namespace lipgrad {

Tensor message_norm(const Tensor& m, const Tensor& x, const Tensor& scale) {
  check_same_kind("message_norm", {&m, &x, &scale});
  LIPGRAD_CHECK(
      m.rank() == 2 && x.rank() == 2 && x.size(0) == m.size(0) && scale.shape() == Shape({1}),
      "message_norm: expects (N, D), (N, any) and (1), got {}, {} and {}", m.shape(), x.shape(),
      scale.shape());
  // |x| = <x, x / |x|>, whose gradient at zero is zero, where that of a root is infinite.
  const Tensor length = sum(mul(x, l2_normalize(x)), {1}, true);
  return mul(l2_normalize(m), mul(length, scale));
}

MessageNorm::MessageNorm(Module& parent, std::string name, const MessageNormOptions& options)
    : Module(parent, std::move(name)),
      scale(*this, "scale", {1}, init::constant(options.scale), options.dtype) {
  LIPGRAD_CHECK(std::isfinite(options.scale), "MessageNorm: scale must be finite, got {}",
                options.scale);
  scale.set_trainable(options.learn_scale);
}

Tensor MessageNorm::forward(const Tensor& m, const Tensor& x) const {
  const ModuleScope scope(path());
  return message_norm(m, x, scale);
}

}  // namespace lipgrad
