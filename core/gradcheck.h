#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <lipgrad/core/module.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/tensor.h>

namespace lipgrad {

struct GradcheckOptions {
  double tolerance = 1e-6;  // largest error accepted
  double floor = 1e-8;      // smallest gradient that errors are measured against
  // A tensor of up to so many elements has each of them checked, a larger one `directions` random
  // directions.
  std::int64_t every_element_up_to = 2000;
  int directions = 8;
  // Accept a gradient that is zero everywhere. Such a gradient is otherwise a failure: it is what
  // an op gives that forgot its backward pass.
  bool zero_gradient = false;
  std::uint64_t seed = 1;  // of the cotangent, the directions and the resampling
};

struct GradcheckResult {
  bool ok = true;
  // For each tensor checked: max |analytic - numeric| / max(max |analytic|, max |numeric|, floor).
  std::vector<double> errors;
  double worst = 0;
  std::int64_t kinks = 0;  // points without a derivative that were met, and moved away from
  std::string failure;     // empty when ok

  // "ok: 3 tensors, worst error 2.1e-10, 1 kink" or the failure.
  std::string report() const;
};

// Compares the gradients that the tape computes for f with central differences, in f64 with steps
// of cbrt(eps) max(1, |x|), under a random normal cotangent. `inputs` are its f64 inputs; tensors
// of other dtypes are handed through. Inputs and parameters may be on a CUDA device: f runs there.
// If a module is given, its parameters (f64) are checked too. f must be a function: the same output
// for the same input. Where the error is too large but the slopes to the left and right differ, the
// point is taken for a kink: the element is moved, the comparison starts again and the kink is
// counted.
GradcheckResult gradcheck(const std::function<std::vector<Tensor>(Inputs)>& f,
                          const std::vector<Tensor>& inputs, Module* module = nullptr,
                          const GradcheckOptions& options = {});

// The same for one output, with or without a module.
template <class F>
requires std::is_convertible_v<std::invoke_result_t<F&, Inputs>, Tensor> GradcheckResult
gradcheck(F f, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  return gradcheck([&](Inputs in) { return std::vector<Tensor>{f(in)}; }, inputs, nullptr, options);
}
template <class F>
requires std::is_convertible_v<std::invoke_result_t<F&, Inputs>, Tensor> GradcheckResult gradcheck(
    F f, const std::vector<Tensor>& inputs, Module& module, const GradcheckOptions& options = {}) {
  return gradcheck([&](Inputs in) { return std::vector<Tensor>{f(in)}; }, inputs, &module, options);
}

}  // namespace lipgrad
