#pragma once

// C++17. Activation functions as elementwise maps; formulas in functors.h.

#include <cstdint>

#include <lipgrad/core/kernel.h>

namespace lipgrad {

enum class Activation : std::uint8_t {
  identity,
  relu,
  leaky_relu,  // slope a for x <= 0
  elu,         // a (e^x - 1) for x <= 0; a >= 0
  gelu,        // x Phi(x), exact
  gelu_tanh,   // its tanh approximation
  silu,        // x sigmoid(x)
  sigmoid,
  tanh,
  softplus,  // log(1 + e^(a x)) / a
};

// Whether activation_backward reads y = f(x) instead of x. `a` is the parameter.
constexpr bool saves_result(Activation f, double a) {
  return f == Activation::relu || f == Activation::elu || f == Activation::sigmoid ||
         f == Activation::tanh || (f == Activation::leaky_relu && a >= 0);
}

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // y[i] = f(x[i]) for i < n. y may be x.
    template <class T> void activation(Activation f, double a, std::int64_t n, const T* x, T* y);

    // gx[i] = gy[i] f'(x[i]); `saved` is y where saves_result, else x. gx may be gy.
    template <class T> void activation_backward(Activation f, double a, std::int64_t n,
                                                const T* saved, const T* gy, T* gx);

    // y(rows, cols) = f(x + bias), bias(cols) added to every row; bias may be null, y may be x.
    template <class T> void bias_activation(Activation f, double a, std::int64_t rows,
                                            std::int64_t cols, const T* x, const T* bias, T* y);)

namespace lipgrad::cpu {
// The same on the calling thread alone, for kernels that apply it to a block still in the cache.
template <class T>
void activation_block(Activation f, double a, std::int64_t n, const T* x, T* y);
template <class T>
void bias_activation_block(Activation f, double a, std::int64_t rows, std::int64_t cols,
                           std::int64_t ldx, const T* x, const T* bias, std::int64_t ldy, T* y);
}  // namespace lipgrad::cpu
