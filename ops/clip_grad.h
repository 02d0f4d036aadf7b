#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lipgrad {

class Module;

// The l2 norms of a module's gradients (of a matrix: Frobenius norms).
struct GradNorms {
  double total = 0;  // of the elements of all gradients together; 0 without gradients
  // Each parameter's, with its path from the module, in the order of named_parameters();
  // parameters without a gradient are left out.
  std::vector<std::pair<std::string, double>> parameters;
};

// Squares and sums are taken in f64 over fixed blocks, all parameters in one pass: the result does
// not depend on the number of threads, and gradients of f32 neither overflow nor vanish. What is
// not finite in a gradient makes its norm and the total so. On a CUDA device one copy to the host
// is waited for.
GradNorms grad_norms(const Module& module);
// grad_norms(module).total
double grad_norm(const Module& module);

// Scales all gradients of the module by the same factor max_norm / (norm + 1e-6) when the l2 norm
// of all their elements exceeds max_norm; returns the norm before, which is grad_norm(module). When
// the norm is not finite nothing is scaled: check the result. Error unless max_norm > 0.
double clip_grad_norm(Module& module, double max_norm);

// Clamps every element of every gradient to [-max_value, max_value]; NaN stays. Error unless
// max_value > 0.
void clip_grad_value(Module& module, double max_value);

}  // namespace lipgrad
