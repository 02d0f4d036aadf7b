#include <lipgrad/ops/kernels/elementwise.h>
#include <lipgrad/ops/kernels/functors.h>

#include "broadcast.cuh"

namespace lipgrad::cuda {
namespace {

// y = condition ? u : v over the broadcast shape (rank >= 1); null operands are zeros.
template <class T>
__global__ void where_kernel(const __grid_constant__ Broadcast shape, const std::uint8_t* condition,
                             const T* u, const T* v, T* y) {
  const Piece<T> piece(shape.numel, false);
  std::int64_t offset[3];
  for (int k = 0; k < piece.size && piece.at(k) < shape.numel; ++k) {
    find(shape, piece.at(k), offset);
    T value = 0;
    if (condition[offset[0]] != 0) {
      if (u) value = u[offset[1]];
    } else {
      if (v) value = v[offset[2]];
    }
    y[piece.at(k)] = value;
  }
}

}  // namespace

template <class T>
void binary(Binary op, const Broadcast& shape, const T* u, const T* v, T* y) {
  using namespace scalar;
  switch (op) {
    case Binary::add:
      return broadcast(Add{0, 0}, shape, u, v, y);
    case Binary::sub:
      return broadcast(Sub{0, 0}, shape, u, v, y);
    case Binary::mul:
      return broadcast(Mul{0, 0}, shape, u, v, y);
    case Binary::div:
      return broadcast(Div{0, 0}, shape, u, v, y);
    case Binary::pow:
      return broadcast(Pow{0, 0}, shape, u, v, y);
    case Binary::minimum:
      return broadcast(Minimum{0, 0}, shape, u, v, y);
    case Binary::maximum:
      return broadcast(Maximum{0, 0}, shape, u, v, y);
  }
}

template <class T>
void binary_backward(Binary op, int which, const Broadcast& shape, const T* u, const T* v,
                     const T* gy, T* g) {
  using namespace scalar;
  const bool first = which == 0;
  switch (op) {
    case Binary::div:
      return first ? broadcast(DivFirst{}, shape, u, v, gy, g)
                   : broadcast(DivSecond{}, shape, u, v, gy, g);
    case Binary::pow:
      return first ? broadcast(PowFirst{}, shape, u, v, gy, g)
                   : broadcast(PowSecond{}, shape, u, v, gy, g);
    case Binary::minimum:
      return first ? broadcast(MinimumFirst{}, shape, u, v, gy, g)
                   : broadcast(MinimumSecond{}, shape, u, v, gy, g);
    case Binary::maximum:
      return first ? broadcast(MaximumFirst{}, shape, u, v, gy, g)
                   : broadcast(MaximumSecond{}, shape, u, v, gy, g);
    default:
      return;  // their gradients are products and copies
  }
}

template <class T>
void where(const Broadcast& given, const std::uint8_t* condition, const T* u, const T* v, T* y) {
  const Broadcast shape = with_rank(given);
  launch(where_kernel<T>, blocks_for(shape.numel, Piece<T>::block), kMapThreads, 0, shape,
         condition, u, v, y);
}

#define INSTANTIATE(T)                                                                            \
  template void binary(Binary, const Broadcast&, const T*, const T*, T*);                         \
  template void binary_backward(Binary, int, const Broadcast&, const T*, const T*, const T*, T*); \
  template void where(const Broadcast&, const std::uint8_t*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
