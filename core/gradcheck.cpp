#include <lipgrad/core/gradcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <lipgrad/core/check.h>

namespace lipgrad {
namespace {

using Fn = std::function<std::vector<Tensor>(Inputs)>;

constexpr int most_restarts = 50;
const double step_size = std::cbrt(std::numeric_limits<double>::epsilon());

// A tensor whose gradient is checked, and its name in messages.
struct Variable {
  std::string name;
  Tensor value;  // shares its storage with what f reads
};

std::vector<double> elements(const Tensor& x) { return x.detach().to_vector<double>(); }

void assign(Tensor& x, const std::vector<double>& values) {
  Tensor to = x.alias(x.shape());
  copy_into(to, from_vector(x.shape(), values));
}

class Checker {
 public:
  Checker(const Fn& f, const std::vector<Tensor>& inputs, Module* module,
          const GradcheckOptions& options)
      : f_(f), options_(options), rng_(options.seed) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool checked = inputs[i].defined() && inputs[i].dtype() == f64;
      LIPGRAD_CHECK(!inputs[i].defined() || inputs[i].dtype() != f32,
                    "gradcheck: input {} is f32; convert it to f64", i);
      inputs_.push_back(checked ? inputs[i].clone() : inputs[i]);
      if (checked) variables_.push_back({fmt::format("input {}", i), inputs_.back()});
      variable_of_input_.push_back(checked);
    }
    if (module) {
      for (auto& [name, parameter] : module->named_parameters()) {
        LIPGRAD_CHECK(parameter->dtype() == f64,
                      "gradcheck: parameter '{}' is f32; call to(f64) on the module", name);
        if (parameter->trainable()) variables_.push_back({name, parameter->value()});
      }
    }
    LIPGRAD_CHECK(!variables_.empty(), "gradcheck: there is no f64 input or parameter to check");
  }

  GradcheckResult run() {
    for (int restart = 0; restart <= most_restarts; ++restart) {
      result_.errors.clear();
      if (compare()) {
        for (double error : result_.errors) result_.worst = std::max(result_.worst, error);
        return result_;
      }
    }
    fail_with(fmt::format("more than {} kinks in a row", most_restarts));
    return result_;
  }

 private:
  void fail_with(const std::string& failure) {
    result_.ok = false;
    if (result_.failure.empty()) result_.failure = failure;
  }

  void compute_gradients() {
    Tape tape;
    std::vector<Tensor> given, wanted;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      given.push_back(variable_of_input_[i] ? tape.watch(inputs_[i]) : inputs_[i]);
      if (variable_of_input_[i]) wanted.push_back(given.back());
    }
    for (std::size_t i = wanted.size(); i < variables_.size(); ++i)
      wanted.push_back(variables_[i].value);
    const std::vector<Tensor> outputs = f_(given);
    gradients_.assign(variables_.size(), {});
    for (std::size_t i = 0; i < variables_.size(); ++i)
      gradients_[i].assign(static_cast<std::size_t>(variables_[i].value.numel()), 0.0);
    const bool first = cotangents_.empty();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      LIPGRAD_CHECK(outputs[k].defined() && outputs[k].dtype() == f64,
                    "gradcheck: the function must return f64 tensors, got {}", outputs[k].str());
      if (first) cotangents_.push_back(randn(outputs[k].shape(), f64, rng_));
      if (!Tape::is_recorded(outputs[k])) continue;  // depends on none of them
      const std::vector<Tensor> g =
          tape.grad(outputs[k], wanted, cotangents_[k].to(outputs[k].device()), {.retain = true});
      for (std::size_t i = 0; i < g.size(); ++i) {
        const std::vector<double> part = elements(g[i]);
        for (std::size_t e = 0; e < part.size(); ++e) gradients_[i][e] += part[e];
      }
    }
  }

  // Copies, since an output may share its storage with an input, which is about to change.
  std::vector<std::vector<double>> evaluate() const {
    std::vector<std::vector<double>> values;
    for (const Tensor& y : f_(inputs_)) values.push_back(elements(y));
    return values;
  }

  // <cotangent, to - from>, term by term: outputs cancel before they are added up.
  double difference(const std::vector<std::vector<double>>& to,
                    const std::vector<std::vector<double>>& from) const {
    double sum = 0;
    for (std::size_t k = 0; k < to.size(); ++k) {
      const double* c = cotangents_[k].data<double>();
      for (std::size_t e = 0; e < to[k].size(); ++e) sum += c[e] * (to[k][e] - from[k][e]);
    }
    return sum;
  }

  struct Slopes {
    double central, left, right;
    bool kink() const {
      return std::abs(right - left) > 1e-3 * std::max({std::abs(left), std::abs(right), 1e-6});
    }
  };

  // Slopes along `direction` (null: along element e alone) of variable i.
  Slopes slopes(std::size_t i, std::int64_t e, const std::vector<double>* direction) {
    Tensor& x = variables_[i].value;
    const std::vector<double> before = elements(x);
    const double h = direction ? step_size : step_size * std::max(1.0, std::abs(before[e]));
    const auto moved = [&](double by) {
      std::vector<double> values = before;
      if (direction) {
        for (std::size_t k = 0; k < values.size(); ++k) values[k] += by * (*direction)[k];
      } else {
        values[e] += by;
      }
      assign(x, values);
      auto y = evaluate();
      assign(x, before);
      return y;
    };
    const auto up = moved(h), down = moved(-h), here = evaluate();
    // The step that was really taken, after rounding.
    const double taken = direction ? 2 * h : (before[e] + h) - (before[e] - h);
    return {difference(up, down) / taken, difference(here, down) / (taken / 2),
            difference(up, here) / (taken / 2)};
  }

  void move_away(std::size_t i, std::int64_t e) {
    ++result_.kinks;
    const double shift = 0.05 * randn({1}, f64, rng_).item();
    std::vector<double> x = elements(variables_[i].value);
    if (e >= 0) {
      x[e] += shift + std::copysign(0.01, shift);
    } else {
      const Tensor noise = randn(variables_[i].value.shape(), f64, rng_);
      for (std::int64_t k = 0; k < noise.numel(); ++k) x[k] += 0.05 * noise.data<double>()[k];
    }
    assign(variables_[i].value, x);
  }

  // False when a kink was met and the comparison must start again.
  bool compare() {
    compute_gradients();
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const std::vector<double>& analytic = gradients_[i];
      const std::int64_t n = variables_[i].value.numel();
      double largest = 0;
      for (double a : analytic) largest = std::max(largest, std::abs(a));
      if (n > 0 && largest == 0 && !options_.zero_gradient)
        fail_with(fmt::format("{}: the gradient is zero everywhere", variables_[i].name));
      const bool each = n <= options_.every_element_up_to;
      const std::int64_t count = each ? n : options_.directions;
      std::vector<Slopes> numeric(static_cast<std::size_t>(count));
      std::vector<double> exact(static_cast<std::size_t>(count));
      double scale = options_.floor;
      for (std::int64_t k = 0; k < count; ++k) {
        if (each) {
          exact[k] = analytic[k];
          numeric[k] = slopes(i, k, nullptr);
        } else {
          const std::vector<double> direction = randn({n}, f64, rng_).to_vector<double>();
          double dot = 0, norm = 0;
          for (std::int64_t e = 0; e < n; ++e) {
            dot += direction[e] * analytic[e];
            norm += analytic[e] * analytic[e];
          }
          exact[k] = dot;
          scale = std::max(scale, std::sqrt(norm));
          numeric[k] = slopes(i, -1, &direction);
        }
        scale = std::max({scale, std::abs(exact[k]), std::abs(numeric[k].central)});
      }
      double error = 0;
      for (std::int64_t k = 0; k < count; ++k) {
        const double here = std::abs(exact[k] - numeric[k].central) / scale;
        if (!(here <= options_.tolerance)) {  // also NaN
          if (numeric[k].kink()) {
            move_away(i, each ? k : -1);
            return false;
          }
          fail_with(fmt::format(
              "{} {}: {} {}: analytic {:.10g}, numeric {:.10g}, error {:.2e} > {:.0e}",
              variables_[i].name, variables_[i].value.shape(), each ? "element" : "direction", k,
              exact[k], numeric[k].central, here, options_.tolerance));
        }
        error = std::isnan(here) ? here : std::max(error, here);
        if (std::isnan(error)) break;
      }
      result_.errors.push_back(std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
    }
    return true;
  }

  const Fn& f_;
  GradcheckOptions options_;
  Generator rng_;
  std::vector<Tensor> inputs_;
  std::vector<bool> variable_of_input_;
  std::vector<Variable> variables_;
  std::vector<Tensor> cotangents_;  // on the CPU
  std::vector<std::vector<double>> gradients_;
  GradcheckResult result_;
};

}  // namespace

std::string GradcheckResult::report() const {
  if (!ok) return failure;
  return fmt::format("ok: {} tensor{}, worst error {:.1e}, {} kink{}", errors.size(),
                     errors.size() == 1 ? "" : "s", worst, kinks, kinks == 1 ? "" : "s");
}

GradcheckResult gradcheck(const Fn& f, const std::vector<Tensor>& inputs, Module* module,
                          const GradcheckOptions& options) {
  return Checker(f, inputs, module, options).run();
}

}  // namespace lipgrad
