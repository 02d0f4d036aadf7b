#pragma once

// C++17. Accesses of 16 bytes, where the pointers allow it.

#include "launch.h"

namespace lipgrad::cuda {

// Neighbouring elements that are loaded and stored by one instruction.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = static_cast<int>(16 / sizeof(T));
  T v[size];
};

// For the host: whether all the pointers are multiples of 16 bytes. Null is one.
template <class... P>
bool aligned(const P*... p) {
  return ((reinterpret_cast<std::uintptr_t>(p) % 16 == 0) && ...);
}

// The pack at p, a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ Pack<T> load(const T* p) {
  return *reinterpret_cast<const Pack<T>*>(p);
}
template <class T>
__device__ __forceinline__ void store(T* p, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(p) = pack;
}

// The first `count` elements at p, `rest` for those behind them. One access where `vector` (p is a
// multiple of 16 bytes) and the pack is whole, else one an element: the same values.
template <class T>
__device__ __forceinline__ Pack<T> load(const T* p, bool vector, std::int64_t count, T rest) {
  constexpr int size = Pack<T>::size;
  if (vector && count >= size) return load(p);
  Pack<T> pack;
#pragma unroll
  for (int k = 0; k < size; ++k) pack.v[k] = k < count ? p[k] : rest;
  return pack;
}
template <class T>
__device__ __forceinline__ void store(T* p, bool vector, std::int64_t count, const Pack<T>& pack) {
  constexpr int size = Pack<T>::size;
  if (vector && count >= size) return store(p, pack);
#pragma unroll
  for (int k = 0; k < size; ++k)
    if (k < count) p[k] = pack.v[k];
}

inline constexpr int kMapThreads = 256;

// The elements that a thread of an elementwise kernel (blocks of kMapThreads threads) handles: one
// pack of neighbours in whole blocks where `vector`, else a block's threads apart. Either way a
// block has the same elements, and neighbouring threads touch neighbouring memory.
template <class T>
struct Piece {
  static constexpr int size = Pack<T>::size;
  static constexpr int block = kMapThreads * size;  // elements of a block

  std::int64_t base, n;
  int first;
  bool whole;

  __device__ Piece(std::int64_t elements, bool vector)
      : base(static_cast<std::int64_t>(blockIdx.x) * block), n(elements) {
    whole = vector && base + block <= n;
    first = static_cast<int>(threadIdx.x) * (whole ? size : 1);
  }
  // The place of element k < size, counted from base and from the start.
  __device__ __forceinline__ int offset(int k) const {
    return first + k * (whole ? 1 : kMapThreads);
  }
  __device__ __forceinline__ std::int64_t at(int k) const { return base + offset(k); }

  __device__ __forceinline__ Pack<T> read(const T* x) const {
    if (whole) return load(x + base + first);
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < size; ++k) pack.v[k] = at(k) < n ? x[at(k)] : T(0);
    return pack;
  }
  // All elements alike where step is 0.
  __device__ __forceinline__ Pack<T> read(const T* x, int step) const {
    if (step != 0) return read(x);
    Pack<T> pack;
#pragma unroll
    for (int k = 0; k < size; ++k) pack.v[k] = *x;
    return pack;
  }
  __device__ __forceinline__ void write(T* y, const Pack<T>& pack) const {
    if (whole) return store(y + base + first, pack);
#pragma unroll
    for (int k = 0; k < size; ++k)
      if (at(k) < n) y[at(k)] = pack.v[k];
  }
};

// The columns of a piece's elements in an array with rows of `cols`: one division a block, then a
// subtraction or a short division.
template <class T>
class Columns {
 public:
  __device__ Columns(const Piece<T>& piece, std::int64_t cols)
      : start_(piece.n <= 0x7fffffff
                   ? static_cast<unsigned>(piece.base) % static_cast<unsigned>(cols)
                   : piece.base % cols),
        cols_(cols) {}
  // That of the element `offset` behind the piece's base.
  __device__ __forceinline__ std::int64_t operator()(int offset) const {
    const std::int64_t c = start_ + offset;
    if (c < cols_) return c;
    if (cols_ >= Piece<T>::block) return c - cols_;
    return static_cast<unsigned>(c) % static_cast<unsigned>(cols_);
  }

 private:
  std::int64_t start_, cols_;
};

// y[i] = f(x[i]) for i < n, and the like for two operands; n elements, blocks of kMapThreads.
template <class F, class T>
__global__ void map_kernel(F f, std::int64_t n, bool vector, const T* x, T* y) {
  const Piece<T> piece(n, vector);
  Pack<T> v = piece.read(x);
#pragma unroll
  for (int k = 0; k < piece.size; ++k) v.v[k] = f(v.v[k]);
  piece.write(y, v);
}

template <class F, class T>
__global__ void map2_kernel(F f, std::int64_t n, bool vector, const T* u, int u_step, const T* v,
                            int v_step, T* y) {
  const Piece<T> piece(n, vector);
  Pack<T> a = piece.read(u, u_step);
  const Pack<T> b = piece.read(v, v_step);
#pragma unroll
  for (int k = 0; k < piece.size; ++k) a.v[k] = f(a.v[k], b.v[k]);
  piece.write(y, a);
}

template <class F, class T>
void map(F f, std::int64_t n, const T* x, T* y) {
  launch(map_kernel<F, T>, blocks_for(n, Piece<T>::block), kMapThreads, 0, f, n, aligned(x, y), x,
         y);
}

// A step of 0 instead of 1 repeats an operand's first element. Such operands need not be aligned.
template <class F, class T>
void map2(F f, std::int64_t n, const T* u, int u_step, const T* v, int v_step, T* y) {
  const bool vector = aligned(y) && (u_step == 0 || aligned(u)) && (v_step == 0 || aligned(v));
  launch(map2_kernel<F, T>, blocks_for(n, Piece<T>::block), kMapThreads, 0, f, n, vector, u, u_step,
         v, v_step, y);
}
template <class F, class T>
void map2(F f, std::int64_t n, const T* u, const T* v, T* y) {
  map2(f, n, u, 1, v, 1, y);
}

}  // namespace lipgrad::cuda
