#pragma once

#include "catalogue/catalogue.h"

namespace lipgrad::catalogue {

struct Outcome {
  std::vector<std::string> failures;  // empty: all is well
  std::vector<double> errors;         // of the gradients, one a tensor checked
  std::int64_t kinks = 0;

  double worst() const;
};

// Checks one case on the CPU:
//  - where `finite_differences`, gradients of all inputs and parameters against them (gradcheck);
//  - of each input alone, and of one tensor given for two inputs of equal shape: the same gradients
//  as
//    in the full pass (kind "normal");
//  - values and gradients in f32 against f64;
//  - values and gradients on 1 and 2 threads, and computed twice: equal bits.
// On a CUDA device:
//  - values and gradients against the CPU's, in f64 to 1e-10 and in f32 to 1e-5;
//  - computed twice: equal bits;
//  - where `finite_differences`, gradients against those computed there.
Outcome check(const Case& c, Device device = cpu_device, bool finite_differences = true);

// The least of it: values and gradients on a device against the CPU's, once, in f64.
Outcome check_once(const Case& c, Device device);

}  // namespace lipgrad::catalogue
