#include <lipgrad/ops/kernels/activation.h>
#include <lipgrad/ops/kernels/functors.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

// y(rows, cols) = f(x + bias), n = rows cols; bias may be null.
template <class F, class T>
__global__ void activation_kernel(F f, std::int64_t n, std::int64_t cols, bool vector, const T* x,
                                  const T* bias, T* y) {
  const Piece<T> piece(n, vector);
  Pack<T> v = piece.read(x);
  if (bias) {
    const Columns<T> column(piece, cols);
    if (piece.whole && cols % piece.size == 0) {
      const Pack<T> b = load(bias + column(piece.first));
#pragma unroll
      for (int k = 0; k < piece.size; ++k) v.v[k] += b.v[k];
    } else {
#pragma unroll
      for (int k = 0; k < piece.size; ++k) v.v[k] += bias[column(piece.offset(k))];
    }
  }
#pragma unroll
  for (int k = 0; k < piece.size; ++k) v.v[k] = f(v.v[k]);
  piece.write(y, v);
}

template <class F, class T>
void run(F f, std::int64_t n, std::int64_t cols, const T* x, const T* bias, T* y) {
  launch(activation_kernel<F, T>, blocks_for(n, Piece<T>::block), kMapThreads, 0, f, n, cols,
         aligned(x, bias, y), x, bias, y);
}

template <class T>
void run(Activation f, double a, std::int64_t n, std::int64_t cols, const T* x, const T* bias,
         T* y) {
  using namespace scalar;
  switch (f) {
    case Activation::identity:
      return run(Identity{a, 0}, n, cols, x, bias, y);
    case Activation::relu:
      return run(Relu{a, 0}, n, cols, x, bias, y);
    case Activation::leaky_relu:
      return run(LeakyRelu{a, 0}, n, cols, x, bias, y);
    case Activation::elu:
      return run(Elu{a, 0}, n, cols, x, bias, y);
    case Activation::gelu:
      return run(Gelu{a, 0}, n, cols, x, bias, y);
    case Activation::gelu_tanh:
      return run(GeluTanh{a, 0}, n, cols, x, bias, y);
    case Activation::silu:
      return run(Silu{a, 0}, n, cols, x, bias, y);
    case Activation::sigmoid:
      return run(Sigmoid{a, 0}, n, cols, x, bias, y);
    case Activation::tanh:
      return run(Tanh{a, 0}, n, cols, x, bias, y);
    case Activation::softplus:
      return run(Softplus{a, 0}, n, cols, x, bias, y);
  }
}

}  // namespace

template <class T>
void activation(Activation f, double a, std::int64_t n, const T* x, T* y) {
  run<T>(f, a, n, 1, x, nullptr, y);
}

template <class T>
void bias_activation(Activation f, double a, std::int64_t rows, std::int64_t cols, const T* x,
                     const T* bias, T* y) {
  run(f, a, rows * cols, cols, x, bias, y);
}

template <class T>
void activation_backward(Activation f, double a, std::int64_t n, const T* saved, const T* gy,
                         T* gx) {
  using namespace scalar;
  switch (f) {
    case Activation::identity:
      return map2(IdentityBackward{a, 0}, n, gy, gy, gx);
    case Activation::relu:
      return map2(ReluBackward{a, 0}, n, saved, gy, gx);
    case Activation::leaky_relu:
      return map2(LeakyReluBackward{a, 0}, n, saved, gy, gx);
    case Activation::elu:
      return map2(EluBackward{a, 0}, n, saved, gy, gx);
    case Activation::gelu:
      return map2(GeluBackward{a, 0}, n, saved, gy, gx);
    case Activation::gelu_tanh:
      return map2(GeluTanhBackward{a, 0}, n, saved, gy, gx);
    case Activation::silu:
      return map2(SiluBackward{a, 0}, n, saved, gy, gx);
    case Activation::sigmoid:
      return map2(SigmoidBackward{a, 0}, n, saved, gy, gx);
    case Activation::tanh:
      return map2(TanhBackward{a, 0}, n, saved, gy, gx);
    case Activation::softplus:
      return map2(SoftplusBackward{a, 0}, n, saved, gy, gx);
  }
}

#define INSTANTIATE(T)                                                                    \
  template void activation(Activation, double, std::int64_t, const T*, T*);               \
  template void bias_activation(Activation, double, std::int64_t, std::int64_t, const T*, \
                                const T*, T*);                                            \
  template void activation_backward(Activation, double, std::int64_t, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
