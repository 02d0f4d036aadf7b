#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/core/gradcheck.h>

// The catalogue: for every op and layer, the cases on which it is checked. One file a family adds
// its cases; `lipgrad gradcheck` and the tests run them all (check.h says what is checked of each).
namespace lipgrad::catalogue {

// One function at one point. Everything random or of floating type goes in as an f64 input or is a
// parameter of the module, so that the checks can convert it; fn may be called any number of times
// and gives the same result for the same inputs.
struct Instance {
  std::vector<Tensor> inputs;
  std::function<std::vector<Tensor>(Inputs)> fn;
  std::shared_ptr<Module> module;  // may be null; initialised, f64
};

struct Case {
  std::string op;  // as its `name`: "softmax"
  // What is special: "normal", "zero rows", "one row", "empty" (some input has no elements), or
  // other words. Inputs that repeat and gradients of a subset are derived from "normal".
  std::string kind;
  std::function<Instance(Generator&)> make;
  GradcheckOptions options = {};
  // Largest error of f32 against f64: values, and gradients.
  double f32_values = 1e-5;
  double f32_gradients = 1e-4;
};

class Catalogue {
 public:
  void add(Case c) { cases_.push_back(std::move(c)); }
  // A case with one output: add("relu", "normal", [](Generator& rng) { return {randn(...)}; },
  //                             [](Inputs in) { return relu(in[0]); });
  void add(std::string op, std::string kind, std::function<std::vector<Tensor>(Generator&)> inputs,
           std::function<Tensor(Inputs)> fn, GradcheckOptions options = {});
  const std::vector<Case>& cases() const { return cases_; }

 private:
  std::vector<Case> cases_;
};

// All cases.
const Catalogue& all();

}  // namespace lipgrad::catalogue
