#include <lipgrad/ops/kernels/functors.h>
#include <lipgrad/ops/kernels/linear.h>

#include "column_sums.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kTile = 32, kLines = 8;  // lines of a tile that a block moves at a time

// y(cols, rows) = x(rows, cols) transposed, a tile a block: both sides touch whole lines.
template <class T>
__global__ void transpose_kernel(std::int64_t rows, std::int64_t cols, std::int64_t across,
                                 const T* x, T* y) {
  LIPGRAD_SHARED(T, tile, [kTile][kTile + 1]);  // one more column: no two rows in one bank
  const int lane = static_cast<int>(threadIdx.x) % kTile,
            line = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t row0 = blockIdx.x / across * kTile, col0 = blockIdx.x % across * kTile;
#pragma unroll
  for (int k = line; k < kTile; k += kLines)
    if (row0 + k < rows && col0 + lane < cols) tile[k][lane] = x[(row0 + k) * cols + col0 + lane];
  __syncthreads();
#pragma unroll
  for (int k = line; k < kTile; k += kLines)
    if (col0 + k < cols && row0 + lane < rows) y[(col0 + k) * rows + row0 + lane] = tile[lane][k];
}

// The gradient behind an activation, written down as it is read to be summed.
template <class F, class T>
struct Gradient {
  F f;
  std::int64_t cols;
  const T *saved, *gy;
  T* gz;
  __device__ T operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t at = row * cols + col;
    const T g = f(__ldg(saved + at), __ldg(gy + at));
    gz[at] = g;
    return g;
  }
};

template <class F, class T>
void gradient_sums(F f, std::int64_t rows, std::int64_t cols, const T* saved, const T* gy, T* gz,
                   T* gbias) {
  column_sums_of(rows, cols, Gradient<F, T>{f, cols, saved, gy, gz}, gbias);
}

}  // namespace

template <class T>
void linear_backward_bias(Activation f, double a, std::int64_t rows, std::int64_t cols,
                          const T* saved, const T* gy, T* gz, T* gbias) {
  using namespace scalar;
  if (!gbias) {
    if (f != Activation::identity) activation_backward(f, a, rows * cols, saved, gy, gz);
    return;
  }
  switch (f) {
    case Activation::identity:
      return column_sums(rows, cols, gy, gbias);
    case Activation::relu:
      return gradient_sums(ReluBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::leaky_relu:
      return gradient_sums(LeakyReluBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::elu:
      return gradient_sums(EluBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::gelu:
      return gradient_sums(GeluBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::gelu_tanh:
      return gradient_sums(GeluTanhBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::silu:
      return gradient_sums(SiluBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::sigmoid:
      return gradient_sums(SigmoidBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::tanh:
      return gradient_sums(TanhBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
    case Activation::softplus:
      return gradient_sums(SoftplusBackward{a, 0}, rows, cols, saved, gy, gz, gbias);
  }
}

template <class T>
void transpose(std::int64_t rows, std::int64_t cols, const T* x, T* y) {
  const std::int64_t down = (rows + kTile - 1) / kTile, across = (cols + kTile - 1) / kTile;
  launch(transpose_kernel<T>, blocks_for(down * across, 1), kTile * kLines, 0, rows, cols, across,
         x, y);
}

#define INSTANTIATE(T)                                                                         \
  template void linear_backward_bias(Activation, double, std::int64_t, std::int64_t, const T*, \
                                     const T*, T*, T*);                                        \
  template void transpose(std::int64_t, std::int64_t, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
