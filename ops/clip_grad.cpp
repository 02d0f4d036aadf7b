#include <lipgrad/ops/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/module.h>
#include <lipgrad/ops/kernels/elementwise.h>
#include <lipgrad/ops/kernels/optimizer.h>

namespace lipgrad {
namespace {

using NamedParameters = std::vector<std::pair<std::string, Parameter*>>;

NamedParameters with_gradient(const Module& module) {
  NamedParameters found = module.named_parameters();
  std::erase_if(found, [](const auto& named) { return !named.second->grad().defined(); });
  return found;
}

// The sums of squares of the gradients of type T on a device, one after another, into `sums`; their
// numbers are added to `which`.
template <class T>
void add_squares(const NamedParameters& parameters, Device device, double* sums,
                 std::vector<std::size_t>& which) {
  std::vector<std::int64_t> sizes;
  std::vector<const T*> data;
  const std::size_t before = which.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& grad = parameters[i].second->grad();
    if (grad.dtype() != dtype_of<T>() || grad.device() != device) continue;
    which.push_back(i);
    sizes.push_back(grad.numel());
    data.push_back(grad.data<T>());
  }
  LIPGRAD_LAUNCH(device, sums_of_squares<T>, static_cast<std::int64_t>(sizes.size()), sizes.data(),
                 data.data(), sums + before);
}

// Of each parameter's gradient, by one copy to the host from every device.
std::vector<double> squares_of(const NamedParameters& parameters) {
  std::vector<double> squares(parameters.size());
  std::vector<Device> devices;
  for (const auto& [path, parameter] : parameters)
    if (const Device device = parameter->grad().device();
        std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  for (const Device device : devices) {
    Tensor sums = empty({static_cast<std::int64_t>(parameters.size())}, f64, device);
    std::vector<std::size_t> which;
    add_squares<float>(parameters, device, sums.mutable_data<double>(), which);
    add_squares<double>(parameters, device, sums.mutable_data<double>(), which);
    const Tensor host = sums.alias({static_cast<std::int64_t>(which.size())}).to(cpu_device);
    for (std::size_t i = 0; i < which.size(); ++i) squares[which[i]] = host.data<double>()[i];
  }
  return squares;
}

GradNorms norms_of(const NamedParameters& parameters) {
  const std::vector<double> squares = squares_of(parameters);
  GradNorms norms;
  double total = 0;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    total += squares[i];
    norms.parameters.emplace_back(parameters[i].first, std::sqrt(squares[i]));
  }
  norms.total = std::sqrt(total);
  return norms;
}

// Replaces every element of the gradients by f of it.
void change(const NamedParameters& parameters, Unary f, double a, double b) {
  for (const auto& [path, parameter] : parameters) {
    Tensor& grad = parameter->mutable_grad();
    visit_float("clip_grad", grad.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const values = grad.mutable_data<T>();
      LIPGRAD_LAUNCH(grad.device(), unary<T>, f, a, b, grad.numel(), values, values);
    });
  }
}

}  // namespace

GradNorms grad_norms(const Module& module) { return norms_of(with_gradient(module)); }

double grad_norm(const Module& module) { return norms_of(with_gradient(module)).total; }

double clip_grad_norm(Module& module, double max_norm) {
  LIPGRAD_CHECK(max_norm > 0, "clip_grad_norm: the largest norm {} must be above 0", max_norm);
  const NamedParameters parameters = with_gradient(module);
  const double norm = norms_of(parameters).total;
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1) return norm;
  change(parameters, Unary::mul_scalar, factor, 0);
  return norm;
}

void clip_grad_value(Module& module, double max_value) {
  LIPGRAD_CHECK(max_value > 0, "clip_grad_value: the largest value {} must be above 0", max_value);
  change(with_gradient(module), Unary::clamp, -max_value, max_value);
}

}  // namespace lipgrad
