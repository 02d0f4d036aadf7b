#pragma once

// C++17. Elementwise kernels over broadcast shapes.

#include <lipgrad/ops/kernels/broadcast.h>

#include "vectors.cuh"

namespace lipgrad::cuda {

// offset[k] = where operand k has element i of the broadcast shape, which has rank >= 1.
template <int operands>
__device__ __forceinline__ void find(const Broadcast& shape, std::int64_t i,
                                     std::int64_t (&offset)[operands]) {
#pragma unroll
  for (int k = 0; k < operands; ++k) offset[k] = 0;
  if (shape.numel <= 0x7fffffff) {  // divisions of 64 bits cost four times as much
    unsigned rest = static_cast<unsigned>(i);
    for (int d = shape.rank - 1; d > 0; --d) {
      const unsigned size = static_cast<unsigned>(shape.size[d]), up = rest / size;
      const std::int64_t index = rest - up * size;
#pragma unroll
      for (int k = 0; k < operands; ++k) offset[k] += index * shape.stride[k][d];
      rest = up;
    }
    i = rest;
  } else {
    for (int d = shape.rank - 1; d > 0; --d) {
      const std::int64_t up = i / shape.size[d], index = i - up * shape.size[d];
#pragma unroll
      for (int k = 0; k < operands; ++k) offset[k] += index * shape.stride[k][d];
      i = up;
    }
  }
#pragma unroll
  for (int k = 0; k < operands; ++k) offset[k] += i * shape.stride[k][0];
}

// The elements at x, or the first of them throughout.
template <class T>
__device__ __forceinline__ Pack<T> load_or_repeat(const T* x, std::int64_t stride) {
  if (stride != 0) return load(x);
  Pack<T> pack;
  const T value = *x;
#pragma unroll
  for (int k = 0; k < Pack<T>::size; ++k) pack.v[k] = value;
  return pack;
}

// y = f(u, v), or f(u, v, w), over a broadcast shape of rank >= 1. Where `vector` no pack of the
// result leaves a row of the innermost dimension, and packs of operands are aligned.
template <class F, class T>
__global__ void broadcast2_kernel(F f, const __grid_constant__ Broadcast shape, bool vector,
                                  const T* u, const T* v, T* y) {
  const Piece<T> piece(shape.numel, vector);
  std::int64_t offset[2];
  if (vector) {
    const std::int64_t i = piece.base + static_cast<int>(threadIdx.x) * piece.size;
    if (i >= shape.numel) return;
    const int last = shape.rank - 1;
    find(shape, i, offset);
    Pack<T> a = load_or_repeat(u + offset[0], shape.stride[0][last]);
    const Pack<T> b = load_or_repeat(v + offset[1], shape.stride[1][last]);
#pragma unroll
    for (int k = 0; k < piece.size; ++k) a.v[k] = f(a.v[k], b.v[k]);
    store(y + i, a);
    return;
  }
  for (int k = 0; k < piece.size && piece.at(k) < shape.numel; ++k) {
    find(shape, piece.at(k), offset);
    y[piece.at(k)] = f(u[offset[0]], v[offset[1]]);
  }
}

template <class F, class T>
__global__ void broadcast3_kernel(F f, const __grid_constant__ Broadcast shape, bool vector,
                                  const T* u, const T* v, const T* w, T* y) {
  const Piece<T> piece(shape.numel, vector);
  std::int64_t offset[3];
  if (vector) {
    const std::int64_t i = piece.base + static_cast<int>(threadIdx.x) * piece.size;
    if (i >= shape.numel) return;
    const int last = shape.rank - 1;
    find(shape, i, offset);
    Pack<T> a = load_or_repeat(u + offset[0], shape.stride[0][last]);
    const Pack<T> b = load_or_repeat(v + offset[1], shape.stride[1][last]);
    const Pack<T> c = load_or_repeat(w + offset[2], shape.stride[2][last]);
#pragma unroll
    for (int k = 0; k < piece.size; ++k) a.v[k] = f(a.v[k], b.v[k], c.v[k]);
    store(y + i, a);
    return;
  }
  for (int k = 0; k < piece.size && piece.at(k) < shape.numel; ++k) {
    find(shape, piece.at(k), offset);
    y[piece.at(k)] = f(u[offset[0]], v[offset[1]], w[offset[2]]);
  }
}

// A single element as a dimension of size 1, so that the rank is never 0.
inline Broadcast with_rank(Broadcast shape) {
  if (shape.rank > 0) return shape;
  shape = Broadcast(1);
  for (int k = 0; k < Broadcast::max_operands; ++k) shape.stride[k][0] = 0;
  return shape;
}

// Whether operand k can be read in packs along the innermost dimension.
template <class T>
bool in_packs(const Broadcast& shape, int k, const T* x) {
  const int last = shape.rank - 1;
  if (shape.stride[k][last] == 0) return true;
  for (int d = 0; d < last; ++d)
    if (shape.stride[k][d] % Pack<T>::size != 0) return false;
  return aligned(x);
}

// y = f(u, v) over the broadcast shape.
template <class F, class T>
void broadcast(F f, const Broadcast& given, const T* u, const T* v, T* y) {
  const Broadcast shape = with_rank(given);
  if (shape.rank == 1) {
    return map2(f, shape.numel, u, static_cast<int>(shape.stride[0][0]), v,
                static_cast<int>(shape.stride[1][0]), y);
  }
  const bool vector = shape.size[shape.rank - 1] % Pack<T>::size == 0 && aligned(y) &&
                      in_packs(shape, 0, u) && in_packs(shape, 1, v);
  launch(broadcast2_kernel<F, T>, blocks_for(shape.numel, Piece<T>::block), kMapThreads, 0, f,
         shape, vector, u, v, y);
}

template <class F, class T>
void broadcast(F f, const Broadcast& given, const T* u, const T* v, const T* w, T* y) {
  const Broadcast shape = with_rank(given);
  const bool vector = shape.size[shape.rank - 1] % Pack<T>::size == 0 && aligned(y) &&
                      in_packs(shape, 0, u) && in_packs(shape, 1, v) && in_packs(shape, 2, w);
  launch(broadcast3_kernel<F, T>, blocks_for(shape.numel, Piece<T>::block), kMapThreads, 0, f,
         shape, vector, u, v, w, y);
}

// Operands of shapes (outer, n, inner), (outer, inner), (outer, inner).
inline Broadcast one_for_each_row(std::int64_t outer, std::int64_t n, std::int64_t inner) {
  const std::int64_t whole[] = {outer, n, inner}, one[] = {outer, 1, inner};
  Broadcast shape(3, whole);
  shape.set_operand(0, 3, whole);
  shape.set_operand(1, 3, one);
  shape.set_operand(2, 3, one);
  shape.collapse(3);
  return shape;
}

}  // namespace lipgrad::cuda
