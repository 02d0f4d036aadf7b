#include <lipgrad/ops/kernels/residual.h>

#include "broadcast.cuh"
#include "column_sums.cuh"

namespace lipgrad::cuda {
namespace {

template <bool kDamped>
struct Forward {
  template <class T>
  __device__ T operator()(T x, T f, T alpha) const {
    return x + alpha * (kDamped ? f - x : f);
  }
};

// Writes gx and gf of an element (null: not wanted) and gives its part of galpha. __ldg: the next
// elements may be read before these are written.
template <class T>
struct Gradient {
  bool damped;
  std::int64_t cols;  // of the arrays; 1 where they are taken as one column
  bool scalar;
  const T *x, *f, *alpha, *gy;
  T *gx, *gf;

  __device__ T operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t at = row * cols + col;
    const T g = __ldg(gy + at), to = __ldg(f + at);
    const T part = g * (damped ? to - __ldg(x + at) : to);
    if (gx || gf) {
      const T along = g * alpha[scalar ? 0 : col];
      if (gf) gf[at] = along;
      if (gx) gx[at] = damped ? g - along : g;
    }
    return part;
  }
};

// gx and gf alone.
template <class T>
__global__ void gradient_kernel(bool damped, std::int64_t n, std::int64_t cols, bool vector,
                                const T* alpha, const T* gy, T* gx, T* gf) {
  const Piece<T> piece(n, vector);
  const Pack<T> g = piece.read(gy);
  Pack<T> along;
  const Columns<T> column(piece, cols);
#pragma unroll
  for (int k = 0; k < piece.size; ++k) along.v[k] = g.v[k] * alpha[column(piece.offset(k))];
  if (gf) piece.write(gf, along);
  if (!gx) return;
#pragma unroll
  for (int k = 0; k < piece.size; ++k) along.v[k] = damped ? g.v[k] - along.v[k] : g.v[k];
  piece.write(gx, along);
}

}  // namespace

template <class T>
void residual(bool damped, std::int64_t rows, std::int64_t cols, bool scalar, const T* x,
              const T* f, const T* alpha, T* y) {
  const std::int64_t whole[] = {rows, cols}, factors[] = {scalar ? 1 : cols};
  Broadcast shape(2, whole);
  shape.set_operand(0, 2, whole);
  shape.set_operand(1, 2, whole);
  shape.set_operand(2, 1, factors);
  shape.collapse(3);
  if (damped) {
    broadcast(Forward<true>{}, shape, x, f, alpha, y);
  } else {
    broadcast(Forward<false>{}, shape, x, f, alpha, y);
  }
}

template <class T>
void residual_backward(bool damped, std::int64_t rows, std::int64_t cols, bool scalar, const T* x,
                       const T* f, const T* alpha, const T* gy, T* gx, T* gf, T* galpha) {
  if (!galpha) {
    if (gx || gf)
      launch(gradient_kernel<T>, blocks_for(rows * cols, Piece<T>::block), kMapThreads, 0, damped,
             rows * cols, scalar ? 1 : cols, aligned(gy, gx, gf), alpha, gy, gx, gf);
    return;
  }
  // The sum over everything is that over one column.
  const Gradient<T> gradient{damped, scalar ? 1 : cols, scalar, x, f, alpha, gy, gx, gf};
  if (scalar) {
    column_sums_of(rows * cols, 1, gradient, galpha);
  } else {
    column_sums_of(rows, cols, gradient, galpha);
  }
}

#define INSTANTIATE(T)                                                                         \
  template void residual(bool, std::int64_t, std::int64_t, bool, const T*, const T*, const T*, \
                         T*);                                                                  \
  template void residual_backward(bool, std::int64_t, std::int64_t, bool, const T*, const T*,  \
                                  const T*, const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
