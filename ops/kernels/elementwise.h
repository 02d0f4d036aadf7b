#pragma once

// C++17. Elementwise maps, with broadcasting where there are two operands or more.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/ops/kernels/broadcast.h>

namespace lipgrad {

// y = f(x). What the gradient is computed from, x or y, stands behind each: see saves_result().
enum class Unary : std::uint8_t {
  neg,
  exp,         // y
  log,         // x
  sqrt,        // y
  abs,         // x
  square,      // x
  reciprocal,  // y
  add_scalar,  // x + a
  mul_scalar,  // x a
  div_scalar,  // x / a
  scalar_sub,  // a - x
  scalar_div,  // a / x; x
  pow_scalar,  // x^a; x
  clamp,       // to [a, b]; x
};

// Whether unary_backward reads y instead of x.
constexpr bool saves_result(Unary op) {
  return op == Unary::exp || op == Unary::sqrt || op == Unary::reciprocal;
}
// Whether unary_backward reads neither.
constexpr bool saves_nothing(Unary op) {
  return op == Unary::neg || op == Unary::add_scalar || op == Unary::mul_scalar ||
         op == Unary::div_scalar || op == Unary::scalar_sub;
}

enum class Binary : std::uint8_t { add, sub, mul, div, pow, minimum, maximum };

}  // namespace lipgrad

LIPGRAD_KERNELS(
    // y[i] = f(x[i]) for i < n. y may be x.
    template <class T> void unary(Unary op, double a, double b, std::int64_t n, const T* x, T* y);

    // gx[i] = gy[i] f'(x[i]); `saved` is x or y as op asks (not read where saves_nothing: may be
    // null). gx may be gy or saved.
    template <class T> void unary_backward(Unary op, double a, double b, std::int64_t n,
                                           const T* saved, const T* gy, T* gx);

    // y = u op v over the broadcast shape: u is operand 0, v operand 1.
    template <class T> void binary(Binary op, const Broadcast& shape, const T* u, const T* v, T* y);

    // The gradient of u op v for operand `which` (0 or 1) over the broadcast shape, before it is
    // summed back to the operand's own: u, v and gy are operands 0, 1 and 2. For div, pow, minimum,
    // maximum (the gradients of the others are products and copies).
    template <class T> void binary_backward(Binary op, int which, const Broadcast& shape,
                                            const T* u, const T* v, const T* gy, T* g);

    // y = condition ? u : v over the broadcast shape (operands 0, 1, 2). The condition is true
    // where it is not 0. Either of u, v may be null: zeros.
    template <class T> void where(const Broadcast& shape, const std::uint8_t* condition, const T* u,
                                  const T* v, T* y);)
