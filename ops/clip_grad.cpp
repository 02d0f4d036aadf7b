#include <lipgrad/ops/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/optimizer.h>

namespace lipgrad {
namespace {

constexpr std::int64_t kGrain = std::int64_t{1} << 14;

std::vector<Parameter*> with_gradient(const char* op, Module& module) {
  std::vector<Parameter*> found;
  for (Parameter* parameter : module.parameters()) {
    if (!parameter->grad().defined()) continue;
    LIPGRAD_CHECK(parameter->grad().device().is_cpu(),
                  "{}: runs on the CPU only, a gradient is on {}", op, parameter->grad().device());
    found.push_back(parameter);
  }
  return found;
}

// Of the gradients whose elements are T.
template <class T>
double squares_of(const std::vector<Parameter*>& parameters) {
  std::vector<std::int64_t> sizes;
  std::vector<const T*> data;
  for (const Parameter* parameter : parameters) {
    if (parameter->dtype() != dtype_of<T>()) continue;
    sizes.push_back(parameter->numel());
    data.push_back(parameter->grad().data<T>());
  }
  return cpu::sum_of_squares<T>(static_cast<std::int64_t>(sizes.size()), sizes.data(), data.data());
}

// Replaces every element x of the gradient by f(x).
template <class F>
void change(Tensor& x, F&& f) {
  visit_float("clip_grad", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* values = x.mutable_data<T>();
    parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[i] = f(values[i]);
    });
  });
}

}  // namespace

double clip_grad_norm(Module& module, double max_norm) {
  LIPGRAD_CHECK(max_norm > 0, "clip_grad_norm: the largest norm {} must be above 0", max_norm);
  const std::vector<Parameter*> parameters = with_gradient("clip_grad_norm", module);
  const double norm = std::sqrt(squares_of<float>(parameters) + squares_of<double>(parameters));
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1) return norm;
  for (Parameter* parameter : parameters)
    change(parameter->mutable_grad(),
           [factor](auto x) { return x * static_cast<decltype(x)>(factor); });
  return norm;
}

void clip_grad_value(Module& module, double max_value) {
  LIPGRAD_CHECK(max_value > 0, "clip_grad_value: the largest value {} must be above 0", max_value);
  for (Parameter* parameter : with_gradient("clip_grad_value", module))
    change(parameter->mutable_grad(), [max_value](auto x) {
      const auto bound = static_cast<decltype(x)>(max_value);
      return x > bound ? bound : x < -bound ? -bound : x;
    });
}

}  // namespace lipgrad
