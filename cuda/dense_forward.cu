#include <lipgrad/vision/kernels/dense_attention.h>

#include "dense.cuh"

namespace lipgrad::cuda {
namespace {

// A block a tile of queries and a slab of columns of the result, over tiles of keys. The largest
// score so far and what follows from it change as keys come.
template <class T>
__global__ void __launch_bounds__(kDenseThreads, 1)
    forward_kernel(DenseArgs<T> args, std::int64_t tiles, T* out, T* stats) {
  constexpr int n = DenseTile<T>::n, per = DenseTile<T>::per;
  LIPGRAD_SHARED(DenseMemory<T>, memory, [1]);
  const DensePlace place(args.form, tiles);
  const DenseHead<T> head(args, place.head);
  const std::int64_t tokens = head.tokens, features = args.form.features, first = place.tile * n;
  T top[per], sum[per], acc[per][kDenseColumns];
#pragma unroll
  for (int r = 0; r < per; ++r) {
    top[r] = -T(INFINITY);
    sum[r] = 0;
#pragma unroll
    for (int c = 0; c < kDenseColumns; ++c) acc[r][c] = 0;
  }
  for (std::int64_t key = 0; key < tokens; key += n) {
    T s[per][per];
    dense_products(memory[0], head.q, first, head.k, key, tokens, features, s);
#pragma unroll
    for (int r = 0; r < per; ++r) {
      const std::int64_t i = first + dense_ty() * per + r;
      T most = -T(INFINITY);
#pragma unroll
      for (int c = 0; c < per; ++c) {
        s[r][c] = head.score(s[r][c], i, key + dense_tx() + 16 * c);
        most = Max()(most, s[r][c]);
      }
      const T now = Max()(top[r], warp_reduce<16>(most, Max()));
      const T shift = now == -T(INFINITY) ? T(0) : now, change = scalar::exp(top[r] - shift);
      top[r] = now;
      T part = 0;
#pragma unroll
      for (int c = 0; c < per; ++c) {
        const std::int64_t j = key + dense_tx() + 16 * c;
        s[r][c] = scalar::exp(s[r][c] - shift);
        part += s[r][c];
        if (args.form.dropout && i < tokens && j < tokens)
          s[r][c] *= dense_keep<T>(args.form, head.b, head.h, i, j);
      }
      sum[r] = sum[r] * change + warp_reduce<16>(part, Sum());
#pragma unroll
      for (int c = 0; c < kDenseColumns; ++c) acc[r][c] *= change;
    }
    dense_store(memory[0], s);
    dense_combine<false>(memory[0], head.v, key, tokens, place.slab, features, acc);
  }
#pragma unroll
  for (int r = 0; r < per; ++r) {
    const bool none = top[r] == -T(INFINITY);
    const T inverse = none ? T(0) : T(1) / sum[r];
    const std::int64_t i = first + dense_ty() * per + r;
    if (place.slab == 0 && dense_tx() == 0 && i < tokens) {
      stats[place.head * 2 * tokens + i] = none ? T(0) : top[r];
      stats[(place.head * 2 + 1) * tokens + i] = inverse;
    }
#pragma unroll
    for (int c = 0; c < kDenseColumns; ++c) acc[r][c] *= inverse;
  }
  const std::int64_t width = args.form.heads * features;
  dense_write(acc, head.nu, first, tokens, place.slab, features,
              out + head.b * tokens * width + head.h * features, width);
}

}  // namespace

template <class T>
void dense_attention_forward(const DenseForm& form, const DenseInput<T>& in, T* out, T* stats) {
  if (form.batch == 0) return;
  const DenseLengthsBuffer<T> buffer(form, in);
  const DenseArgs<T> args{form, in, buffer.lengths, nullptr, nullptr, nullptr};
  launch(forward_kernel<T>, dense_blocks<T>(form), kDenseThreads, 0, args, dense_tiles<T>(form),
         out, stats);
}

template void dense_attention_forward(const DenseForm&, const DenseInput<float>&, float*, float*);
template void dense_attention_forward(const DenseForm&, const DenseInput<double>&, double*,
                                      double*);

}  // namespace lipgrad::cuda
