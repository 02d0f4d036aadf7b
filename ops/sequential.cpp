#include <lipgrad/ops/sequential.h>

#include <lipgrad/core/check.h>

namespace lipgrad {

void Sequential::add(std::unique_ptr<Module> module, Run run) {
  stages_.push_back({std::move(module), std::move(run)});
}

void Sequential::then(std::function<Tensor(const Tensor&)> function) {
  LIPGRAD_CHECK(function, "Sequential: stage {} is an empty function", stages_.size());
  add(nullptr, [f = std::move(function)](const Tensor& x, Mode) { return f(x); });
}

Tensor Sequential::forward(const Tensor& x, Mode mode) const {
  Tensor y = x;
  for (const Stage& stage : stages_) y = stage.run(y, mode);
  return y;
}

}  // namespace lipgrad
