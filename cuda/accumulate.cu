#include <lipgrad/core/kernels/accumulate.h>

#include "column_sums.cuh"

namespace lipgrad::cuda {
namespace {

template <class T>
__global__ void fill_kernel(T* x, std::int64_t n, bool vector, T value) {
  const Piece<T> piece(n, vector);
  Pack<T> v;
#pragma unroll
  for (int k = 0; k < piece.size; ++k) v.v[k] = value;
  piece.write(x, v);
}

template <class T>
__global__ void nonfinite_kernel(const T* x, std::int64_t n, bool vector, int* found) {
  const Piece<T> piece(n, vector);
  const Pack<T> v = piece.read(x);
  bool any = false;
#pragma unroll
  for (int k = 0; k < piece.size; ++k) any |= !(v.v[k] - v.v[k] == T(0));
  if (any) atomicMax(found, 1);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace

// Sums over one dimension after the other, the last one first: each pass leaves a smaller array.
template <class T>
void accumulate(const ReducedBox& box, T* to, const T* from) {
  std::int64_t n = 1, outer = 1, inner = 1;
  int last = -1, summed = 0;
  for (int i = 0; i < box.rank; ++i) {
    n *= box.size[i];
    if (box.kept[i]) continue;
    last = i;
    ++summed;
  }
  if (n == 0) return;
  if (summed == 0) return map2(Plus{}, n, static_cast<const T*>(to), from, to);
  for (int i = 0; i < last; ++i) outer *= box.size[i];
  for (int i = last + 1; i < box.rank; ++i) inner *= box.size[i];
  if (summed == 1) return add_up(outer, box.size[last], inner, 1, true, from, to);
  const Scratch<T> part(outer * inner);
  add_up(outer, box.size[last], inner, 1, false, from, part.get());
  ReducedBox rest;
  for (int i = 0; i < box.rank; ++i)
    if (i != last) rest.add(box.size[i], box.kept[i]);
  accumulate(rest, to, static_cast<const T*>(part.get()));
}

template <class T>
void fill(T* x, std::int64_t n, T value) {
  launch(fill_kernel<T>, blocks_for(n, Piece<T>::block), kMapThreads, 0, x, n, aligned(x), value);
}

template <class T>
void has_nonfinite(const T* x, std::int64_t n, int* found) {
  fill(found, 1, 0);
  launch(nonfinite_kernel<T>, blocks_for(n, Piece<T>::block), kMapThreads, 0, x, n, aligned(x),
         found);
}

template void fill<float>(float*, std::int64_t, float);
template void fill<double>(double*, std::int64_t, double);
template void fill<std::int32_t>(std::int32_t*, std::int64_t, std::int32_t);
template void fill<std::int64_t>(std::int64_t*, std::int64_t, std::int64_t);
template void fill<std::uint8_t>(std::uint8_t*, std::int64_t, std::uint8_t);
template void accumulate<float>(const ReducedBox&, float*, const float*);
template void accumulate<double>(const ReducedBox&, double*, const double*);
template void has_nonfinite<float>(const float*, std::int64_t, int*);
template void has_nonfinite<double>(const double*, std::int64_t, int*);

}  // namespace lipgrad::cuda
