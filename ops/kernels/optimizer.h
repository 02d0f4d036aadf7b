#pragma once

// C++17. Fused optimiser steps over many tensors at once; the update rules are PyTorch's. The lists
// are in the host's memory, what they point to in the device's.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

template <class T>
struct SgdTensor {
  std::int64_t n;
  T* param;
  const T* grad;
  T* momentum;  // zeros before the first step; null: no momentum
  double lr, weight_decay;
};

// g = grad + weight_decay param; with momentum m: m = momentum m + g, g = nesterov ? g + momentum m
// : m; param -= lr g. grad is not changed.
struct SgdRule {
  double momentum = 0;
  bool nesterov = false;
};

template <class T>
struct AdamTensor {
  std::int64_t n;
  T* param;
  const T* grad;
  T* m;  // zeros before the first step
  T* v;  // zeros before the first step
  double lr, weight_decay;
  std::int64_t step;  // 1 at the first step of this tensor
};

// Kingma and Ba (arXiv:1412.6980): m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
// param -= lr / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + eps). weight_decay is added
// to the gradient; decoupled (AdamW, Loshchilov and Hutter, arXiv:1711.05101): param *= 1 - lr
// weight_decay first.
struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled = false;
};

}  // namespace lipgrad

LIPGRAD_KERNELS(template <class T>
                void sgd(std::int64_t tensors, const SgdTensor<T>* list, SgdRule rule);
                template <class T>
                void adam(std::int64_t tensors, const AdamTensor<T>* list, AdamRule rule);

                // sums[t] is the sum of the squares of all elements of tensor t. Squares and sums
                // are taken in double, so that large and small floats neither overflow nor vanish,
                // in an order that depends on the sizes alone. `sums` is memory of the device; the
                // lists of sizes and tensors are the host's.
                template <class T>
                void sums_of_squares(std::int64_t tensors, const std::int64_t* sizes,
                                     const T* const* x, double* sums);)
