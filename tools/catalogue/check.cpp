#include "catalogue/check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/threads.h>

namespace lipgrad::catalogue {
namespace {

// Values of fn, then the gradients of the wanted inputs and of all parameters under fixed
// cotangents.
struct Pass {
  std::vector<Tensor> values, gradients;
};

bool is_variable(const Tensor& x) { return x.defined() && is_floating(x.dtype()); }

// wanted: index of the only input to differentiate, or -1 for all.
Pass run(const Instance& at, const std::vector<Tensor>& inputs, int wanted = -1) {
  Pass pass;
  Tape tape;
  std::vector<Tensor> given, variables;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool watched = is_variable(inputs[i]) && (wanted < 0 || wanted == static_cast<int>(i));
    given.push_back(watched ? tape.watch(inputs[i]) : inputs[i]);
    if (watched) variables.push_back(given.back());
  }
  if (at.module && wanted < 0)
    for (Parameter* parameter : at.module->parameters())
      if (parameter->trainable()) variables.push_back(parameter->value());
  const std::vector<Tensor> values = at.fn(given);
  Generator rng{99};
  for (const Tensor& y : values) {
    pass.values.push_back(y.detach());
    const Tensor cotangent = randn(y.shape(), f64, rng).to(y.dtype()).to(y.device());
    if (!Tape::is_recorded(y)) continue;
    for (Tensor& g : tape.grad(y, variables, cotangent, {.retain = true}))
      pass.gradients.push_back(std::move(g));
  }
  return pass;
}

// max |a - b| / max(max |a|, max |b|, tiny).
double difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().to(cpu_device).to(f64), y = b.detach().to(cpu_device).to(f64);
  double largest = 1e-30, error = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i];
    if (p == q || (std::isnan(p) && std::isnan(q))) {
      if (std::isfinite(p)) largest = std::max(largest, std::abs(p));
      continue;
    }
    largest = std::max({largest, std::abs(p), std::abs(q)});
    const double d = std::abs(p - q);
    error = std::isnan(d) ? INFINITY : std::max(error, d);
  }
  return error / largest;
}

void compare(Outcome& outcome, const std::string& what, const std::vector<Tensor>& a,
             const std::vector<Tensor>& b, double tolerance) {
  if (a.size() != b.size()) {
    outcome.failures.push_back(fmt::format("{}: {} tensors against {}", what, a.size(), b.size()));
    return;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i].shape() == b[i].shape())) {
      outcome.failures.push_back(fmt::format("{} {}: shape {} against {}", what, i,
                                             a[i].shape().str(), b[i].shape().str()));
    } else if (tolerance == 0 ? !bitwise_equal(a[i], b[i])
                              : !(difference(a[i], b[i]) <= tolerance)) {
      outcome.failures.push_back(fmt::format("{} {}: differ by {:.2e}, at most {:.0e} is accepted",
                                             what, i, difference(a[i], b[i]), tolerance));
    }
  }
}

void check_subsets(Outcome& outcome, const Instance& at, const Pass& full) {
  std::vector<int> variables;
  for (std::size_t i = 0; i < at.inputs.size(); ++i)
    if (is_variable(at.inputs[i])) variables.push_back(static_cast<int>(i));
  const std::size_t outputs = full.values.size(),
                    per_output = full.gradients.size() / std::max<std::size_t>(outputs, 1);
  for (std::size_t v = 0; variables.size() > 1 && v < variables.size(); ++v) {
    const Pass one = run(at, at.inputs, variables[v]);
    if (one.gradients.size() != outputs) continue;  // some output does not depend on it
    for (std::size_t k = 0; k < outputs; ++k)
      compare(outcome, "gradient of one input alone", {one.gradients[k]},
              {full.gradients[k * per_output + v]}, 1e-12);
  }
  for (std::size_t i = 0; i + 1 < variables.size(); ++i) {
    const int a = variables[i], b = variables[i + 1];
    if (!(at.inputs[a].shape() == at.inputs[b].shape())) continue;
    // One tensor as both inputs: its gradient is the sum of what two equal tensors get.
    std::vector<Tensor> equal = at.inputs;
    equal[b] = equal[a].clone();
    const Pass apart = run(at, equal);
    Tape tape;
    std::vector<Tensor> given = at.inputs;
    given[a] = given[b] = tape.watch(at.inputs[a]);
    const std::vector<Tensor> values = at.fn(given);
    Generator rng{99};
    for (std::size_t k = 0; k < values.size(); ++k) {
      const Tensor cotangent = randn(values[k].shape(), f64, rng);
      if (!Tape::is_recorded(values[k]) || apart.gradients.size() != outputs * per_output) continue;
      const Tensor together = tape.grad(values[k], {given[a]}, cotangent, {.retain = true})[0];
      const Tensor left = apart.gradients[k * per_output + i],
                   right = apart.gradients[k * per_output + i + 1];
      Tensor sum = left.clone();
      for (std::int64_t e = 0; e < sum.numel(); ++e)
        sum.mutable_data<double>()[e] += right.data<double>()[e];
      compare(outcome, "gradient of a repeated input", {together}, {sum}, 1e-12);
    }
    break;
  }
}

}  // namespace

double Outcome::worst() const {
  return errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
}

namespace {

void add_gradcheck(Outcome& outcome, const Case& c, const Instance& at,
                   const std::vector<Tensor>& inputs) {
  const GradcheckResult result = gradcheck(at.fn, inputs, at.module.get(), c.options);
  outcome.errors = result.errors;
  outcome.kinks = result.kinks;
  if (!result.ok) outcome.failures.push_back(result.failure);
}

void check_on_cpu(Outcome& outcome, const Case& c, bool finite_differences) {
  const int threads = num_threads();
  Generator rng{7};
  const Instance at = c.make(rng);
  const Pass full = run(at, at.inputs);

  set_num_threads(1);
  const Pass one = run(at, at.inputs);
  set_num_threads(2);
  const Pass two = run(at, at.inputs), again = run(at, at.inputs);
  set_num_threads(threads);
  for (const Pass* other : {&two, &again}) {
    compare(outcome, "value on 2 threads", other->values, one.values, 0);
    compare(outcome, "gradient on 2 threads", other->gradients, one.gradients, 0);
  }

  if (finite_differences) add_gradcheck(outcome, c, at, at.inputs);
  if (c.kind == "normal") check_subsets(outcome, at, full);

  std::vector<Tensor> narrow;
  for (const Tensor& x : at.inputs) narrow.push_back(is_variable(x) ? x.to(f32) : x);
  if (at.module) at.module->to(f32);
  const Pass single = run(at, narrow);
  compare(outcome, "value in f32", single.values, full.values, c.f32_values);
  compare(outcome, "gradient in f32", single.gradients, full.gradients, c.f32_gradients);
  for (const Tensor& y : single.values)
    if (y.dtype() != f32)
      outcome.failures.push_back("value of f32 inputs is " + std::string(name_of(y.dtype())));
}

std::vector<Tensor> moved(const std::vector<Tensor>& inputs, Device device, DType dtype) {
  std::vector<Tensor> result;
  for (const Tensor& x : inputs)
    result.push_back(!x.defined() ? x : (is_variable(x) ? x.to(dtype) : x).to(device));
  return result;
}

void check_on_cuda(Outcome& outcome, const Case& c, Device device, bool finite_differences) {
  Generator rng{7};
  const Instance at = c.make(rng);
  for (const DType dtype : {f64, f32}) {
    if (at.module) {
      at.module->to(cpu_device);
      at.module->to(dtype);
    }
    const Pass expected = run(at, moved(at.inputs, cpu_device, dtype));
    if (at.module) at.module->to(device);
    const std::vector<Tensor> inputs = moved(at.inputs, device, dtype);
    const Pass pass = run(at, inputs), again = run(at, inputs);
    const double tolerance = dtype == f64 ? 1e-10 : 1e-5;
    const std::string on = fmt::format(" in {} on {}", dtype, device);
    compare(outcome, "value" + on, pass.values, expected.values, tolerance);
    compare(outcome, "gradient" + on, pass.gradients, expected.gradients, tolerance);
    compare(outcome, "value, again," + on, again.values, pass.values, 0);
    compare(outcome, "gradient, again," + on, again.gradients, pass.gradients, 0);
    for (const Tensor& y : pass.values)
      if (y.device() != device)
        outcome.failures.push_back(fmt::format("value{} is on {}", on, y.device()));
    if (dtype == f64 && finite_differences) add_gradcheck(outcome, c, at, inputs);
  }
}

}  // namespace

Outcome check_once(const Case& c, Device device) {
  Outcome outcome;
  try {
    Generator rng{7};
    const Instance at = c.make(rng);
    const Pass expected = run(at, at.inputs);
    if (at.module) at.module->to(device);
    const Pass pass = run(at, moved(at.inputs, device, f64));
    compare(outcome, "value", pass.values, expected.values, 1e-10);
    compare(outcome, "gradient", pass.gradients, expected.gradients, 1e-10);
  } catch (const Error& error) {
    outcome.failures.push_back(error.what());
  }
  return outcome;
}

Outcome check(const Case& c, Device device, bool finite_differences) {
  Outcome outcome;
  const int threads = num_threads();
  try {
    if (device.is_cpu())
      check_on_cpu(outcome, c, finite_differences);
    else
      check_on_cuda(outcome, c, device, finite_differences);
  } catch (const Error& error) {
    outcome.failures.push_back(error.what());
  }
  set_num_threads(threads);
  return outcome;
}

}  // namespace lipgrad::catalogue
