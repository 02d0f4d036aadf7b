#pragma once

namespace lipgrad {

class Module;

// Scales all gradients of the module by the same factor max_norm / (norm + 1e-6) when the l2 norm
// of all their elements exceeds max_norm; returns the norm before (0 without gradients). Sums run
// in f64 over fixed blocks: the result does not depend on the number of threads. When the norm is
// not finite nothing is scaled: check the result. Error unless max_norm > 0.
double clip_grad_norm(Module& module, double max_norm);

// Clamps every element of every gradient to [-max_value, max_value]; NaN stays. Error unless
// max_value > 0.
void clip_grad_value(Module& module, double max_value);

}  // namespace lipgrad
