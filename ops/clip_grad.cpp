#include <lipgrad/ops/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/module.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/kernels/optimizer.h>

namespace lipgrad {
namespace {

constexpr std::int64_t kGrain = std::int64_t{1} << 14;

using NamedParameters = std::vector<std::pair<std::string, Parameter*>>;

NamedParameters with_gradient(const char* op, const Module& module) {
  NamedParameters found = module.named_parameters();
  std::erase_if(found, [](const auto& named) { return !named.second->grad().defined(); });
  for (const auto& [path, parameter] : found)
    LIPGRAD_CHECK(parameter->grad().device().is_cpu(),
                  "{}: runs on the CPU only, the gradient of {} is on {}", op, path,
                  parameter->grad().device());
  return found;
}

// squares[i] becomes that of parameter i, for those whose elements are T.
template <class T>
void add_squares(const NamedParameters& parameters, std::vector<double>& squares) {
  std::vector<std::size_t> which;
  std::vector<std::int64_t> sizes;
  std::vector<const T*> data;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = *parameters[i].second;
    if (parameter.dtype() != dtype_of<T>()) continue;
    which.push_back(i);
    sizes.push_back(parameter.numel());
    data.push_back(parameter.grad().data<T>());
  }
  std::vector<double> sums(which.size());
  cpu::sums_of_squares<T>(static_cast<std::int64_t>(sizes.size()), sizes.data(), data.data(),
                          sums.data());
  for (std::size_t i = 0; i < which.size(); ++i) squares[which[i]] = sums[i];
}

GradNorms norms_of(const NamedParameters& parameters) {
  std::vector<double> squares(parameters.size());
  add_squares<float>(parameters, squares);
  add_squares<double>(parameters, squares);
  GradNorms norms;
  double total = 0;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    total += squares[i];
    norms.parameters.emplace_back(parameters[i].first, std::sqrt(squares[i]));
  }
  norms.total = std::sqrt(total);
  return norms;
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

GradNorms grad_norms(const Module& module) { return norms_of(with_gradient("grad_norms", module)); }

double grad_norm(const Module& module) {
  return norms_of(with_gradient("grad_norm", module)).total;
}

double clip_grad_norm(Module& module, double max_norm) {
  LIPGRAD_CHECK(max_norm > 0, "clip_grad_norm: the largest norm {} must be above 0", max_norm);
  const NamedParameters parameters = with_gradient("clip_grad_norm", module);
  const double norm = norms_of(parameters).total;
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1) return norm;
  for (const auto& [path, parameter] : parameters)
    change(parameter->mutable_grad(),
           [factor](auto x) { return x * static_cast<decltype(x)>(factor); });
  return norm;
}

void clip_grad_value(Module& module, double max_value) {
  LIPGRAD_CHECK(max_value > 0, "clip_grad_value: the largest value {} must be above 0", max_value);
  for (const auto& [path, parameter] : with_gradient("clip_grad_value", module))
    change(parameter->mutable_grad(), [max_value](auto x) {
      const auto bound = static_cast<decltype(x)>(max_value);
      return x > bound ? bound : x < -bound ? -bound : x;
    });
}

}  // namespace lipgrad
