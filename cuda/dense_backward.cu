#include <lipgrad/vision/kernels/dense_attention.h>

#include "dense.cuh"

// With g_ij = <grad_out_i, v'_j>: centre_i = sum_j keep p g, ds_ij = nu p_ij (keep_ij g_ij -
// centre_i); vision/kernels/dense_backward_cpu.cpp says what follows.

namespace lipgrad::cuda {
namespace {

// At most so many parts of a head's windows have sums of the bias of their own.
constexpr std::int64_t kBiasParts = 64;

template <class T>
struct Weights {
  T p, keep;
};

// p_ij and keep_ij from <q'_i, k'_j>; both zero behind the last token.
template <class T>
__device__ __forceinline__ Weights<T> weights(const DenseArgs<T>& args, const DenseHead<T>& head,
                                              T product, std::int64_t i, std::int64_t j) {
  if (i >= head.tokens || j >= head.tokens) return {T(0), T(0)};
  const T p = scalar::exp(head.score(product, i, j) - head.top[i]) * head.inverse[i];
  return {p, args.form.dropout ? dense_keep<T>(args.form, head.b, head.h, i, j) : T(1)};
}

// Tiles of the products with keys and of g become keep p and ds.
template <class T>
__device__ __forceinline__ void slopes(const DenseArgs<T>& args, const DenseHead<T>& head,
                                       std::int64_t query, std::int64_t key,
                                       T (&product)[DenseTile<T>::per][DenseTile<T>::per],
                                       T (&g)[DenseTile<T>::per][DenseTile<T>::per]) {
  constexpr int per = DenseTile<T>::per;
#pragma unroll
  for (int r = 0; r < per; ++r) {
    const std::int64_t i = query + dense_ty() * per + r;
    const T centre = i < head.tokens ? head.centre[i] : T(0);
#pragma unroll
    for (int c = 0; c < per; ++c) {
      const auto [p, keep] = weights(args, head, product[r][c], i, key + dense_tx() + 16 * c);
      g[r][c] = head.nu * p * (keep * g[r][c] - centre);
      product[r][c] = p * keep;
    }
  }
}

// A block a tile of queries and a slab of columns of grad_q. Blocks of the first slab also write
// centre, and their parts of the gradients of tau and nu (tiles a head) unless null.
template <class T>
__global__ void __launch_bounds__(kDenseThreads, 1)
    targets_kernel(DenseArgs<T> args, std::int64_t tiles, T* centres, T* grad_q, double* of_tau,
                   double* of_nu) {
  constexpr int n = DenseTile<T>::n, per = DenseTile<T>::per;
  LIPGRAD_SHARED(DenseMemory<T>, memory, [1]);
  const DensePlace place(args.form, tiles);
  const DenseHead<T> head(args, place.head);
  const std::int64_t tokens = head.tokens, features = args.form.features, first = place.tile * n;
  T s[per][per], g[per][per], centre[per], acc[per][kDenseColumns];
#pragma unroll
  for (int r = 0; r < per; ++r) {
    centre[r] = 0;
#pragma unroll
    for (int c = 0; c < kDenseColumns; ++c) acc[r][c] = 0;
  }
  const auto products = [&](std::int64_t key) {
    dense_products(memory[0], head.q, first, head.k, key, tokens, features, s);
    dense_products(memory[0], head.gy, first, head.v, key, tokens, features, g);
  };
  for (std::int64_t key = 0; key < tokens; key += n) {
    products(key);
#pragma unroll
    for (int r = 0; r < per; ++r) {
      const std::int64_t i = first + dense_ty() * per + r;
#pragma unroll
      for (int c = 0; c < per; ++c) {
        const auto [p, keep] = weights(args, head, s[r][c], i, key + dense_tx() + 16 * c);
        centre[r] += p * keep * g[r][c];
      }
    }
  }
  double tau = 0, nu = 0;
#pragma unroll
  for (int r = 0; r < per; ++r) {
    const std::int64_t i = first + dense_ty() * per + r;
    centre[r] = warp_reduce<16>(centre[r], Sum());
    if (i >= tokens) continue;
    if (dense_tx() == 0) {
      nu += centre[r];
      if (place.slab == 0) centres[place.head * tokens + i] = centre[r];
    }
  }
  for (std::int64_t key = 0; key < tokens; key += n) {
    if (tokens > n) products(key);  // else they are still there
#pragma unroll
    for (int r = 0; r < per; ++r) {
      const std::int64_t i = first + dense_ty() * per + r;
#pragma unroll
      for (int c = 0; c < per; ++c) {
        const auto [p, keep] = weights(args, head, s[r][c], i, key + dense_tx() + 16 * c);
        g[r][c] = head.nu * p * (keep * g[r][c] - centre[r]);
        tau += static_cast<double>(g[r][c]) * s[r][c];
      }
    }
    if (grad_q == nullptr) continue;
    dense_store(memory[0], g);
    dense_combine<false>(memory[0], head.k, key, tokens, place.slab, features, acc);
  }
  if (grad_q != nullptr)
    dense_write(acc, head.tau, first, tokens, place.slab, features,
                grad_q + head.b * tokens * args.in.row + head.h * features, args.in.row);
  if (of_tau != nullptr) tau = block_reduce<kDenseThreads>(tau, Sum(), 0.0);
  if (of_nu != nullptr) nu = block_reduce<kDenseThreads>(nu, Sum(), 0.0);
  if (threadIdx.x != 0 || place.slab != 0) return;
  if (of_tau != nullptr) of_tau[place.head * tiles + place.tile] = tau;
  if (of_nu != nullptr) of_nu[place.head * tiles + place.tile] = nu;
}

// A block a tile of keys and a slab of columns of grad_k and grad_v, over tiles of queries.
template <class T>
__global__ void __launch_bounds__(kDenseThreads, 1)
    sources_kernel(DenseArgs<T> args, std::int64_t tiles, T* grad_k, T* grad_v) {
  constexpr int n = DenseTile<T>::n, per = DenseTile<T>::per;
  LIPGRAD_SHARED(DenseMemory<T>, memory, [1]);
  const DensePlace place(args.form, tiles);
  const DenseHead<T> head(args, place.head);
  const std::int64_t tokens = head.tokens, features = args.form.features, first = place.tile * n;
  T of_k[per][kDenseColumns], of_v[per][kDenseColumns];
#pragma unroll
  for (int r = 0; r < per; ++r)
#pragma unroll
    for (int c = 0; c < kDenseColumns; ++c) of_k[r][c] = of_v[r][c] = 0;
  for (std::int64_t query = 0; query < tokens; query += n) {
    T s[per][per], g[per][per];
    dense_products(memory[0], head.q, query, head.k, first, tokens, features, s);
    dense_products(memory[0], head.gy, query, head.v, first, tokens, features, g);
    slopes(args, head, query, first, s, g);
    dense_store(memory[0], g);
    dense_combine<true>(memory[0], head.q, query, tokens, place.slab, features, of_k);
    dense_store(memory[0], s);
    dense_combine<true>(memory[0], head.gy, query, tokens, place.slab, features, of_v);
  }
  const std::int64_t at = head.b * tokens * args.in.row + head.h * features;
  dense_write(of_k, head.tau, first, tokens, place.slab, features, grad_k + at, args.in.row);
  dense_write(of_v, head.nu, first, tokens, place.slab, features, grad_v + at, args.in.row);
}

// A block a head, a tile of its bias and `windows` windows: the sum of their ds to partial (parts,
// H, T, T).
template <class T>
__global__ void __launch_bounds__(kDenseThreads, 1)
    bias_kernel(DenseArgs<T> args, std::int64_t tiles, std::int64_t windows, T* partial) {
  constexpr int n = DenseTile<T>::n, per = DenseTile<T>::per;
  LIPGRAD_SHARED(DenseMemory<T>, memory, [1]);
  const std::int64_t block = blockIdx.x, key = block % tiles * n, query = block / tiles % tiles * n,
                     slot = block / tiles / tiles, h = slot % args.form.heads,
                     begin = slot / args.form.heads * windows, tokens = args.form.tokens;
  T sum[per][per];
#pragma unroll
  for (int r = 0; r < per; ++r)
#pragma unroll
    for (int c = 0; c < per; ++c) sum[r][c] = 0;
  for (std::int64_t b = begin; b < begin + windows && b < args.form.batch; ++b) {
    const DenseHead<T> head(args, b * args.form.heads + h);
    T s[per][per], g[per][per];
    dense_products(memory[0], head.q, query, head.k, key, tokens, args.form.features, s);
    dense_products(memory[0], head.gy, query, head.v, key, tokens, args.form.features, g);
    slopes(args, head, query, key, s, g);
#pragma unroll
    for (int r = 0; r < per; ++r)
#pragma unroll
      for (int c = 0; c < per; ++c) sum[r][c] += g[r][c];
  }
#pragma unroll
  for (int r = 0; r < per; ++r) {
    const std::int64_t i = query + dense_ty() * per + r;
#pragma unroll
    for (int c = 0; c < per; ++c) {
      const std::int64_t j = key + dense_tx() + 16 * c;
      if (i < tokens && j < tokens) partial[(slot * tokens + i) * tokens + j] = sum[r][c];
    }
  }
}

// to(n) = the sum of partial(parts, n), in order.
template <class T>
__global__ void parts_kernel(std::int64_t parts, std::int64_t n, const T* partial, T* to) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  T sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * n + i];
  to[i] = sum;
}

// A block a number: the sum of partial(B, H, tiles) of one head, or of all where there is one
// number.
template <class T>
__global__ void numbers_kernel(std::int64_t batch, std::int64_t heads, std::int64_t tiles,
                               std::int64_t numbers, const double* partial, T* to) {
  const std::int64_t h = blockIdx.x, row = heads * tiles, length = numbers == 1 ? row : tiles,
                     count = batch * length;
  double sum = 0;
  for (std::int64_t k = threadIdx.x; k < count; k += kDenseThreads)
    sum += partial[k / length * row + h * tiles + k % length];
  sum = block_reduce<kDenseThreads>(sum, Sum(), 0.0);
  if (threadIdx.x == 0) to[h] = static_cast<T>(sum);
}

// A warp a row (b, h, t): the gradient of z' = z / its length becomes that of z, in place.
template <class T>
__global__ void rows_kernel(DenseForm form, const T* z, const T* inverse, std::int64_t row,
                            T* grad) {
  const std::int64_t at = thread_index() / kWarp, lane = threadIdx.x % kWarp;
  const bool alive = at < form.batch * form.heads * form.tokens;
  const std::int64_t t = at % form.tokens, head = at / form.tokens, h = head % form.heads,
                     b = head / form.heads;
  const std::int64_t offset = (b * form.tokens + t) * row + h * form.features;
  const T scale = alive ? inverse[at] : T(0);
  T along = 0;
  for (std::int64_t d = lane; scale > T(0) && d < form.features; d += kWarp)
    along += z[offset + d] * grad[offset + d];
  along = warp_reduce(along, Sum()) * scale * scale;
  const T by = scale < T(0) ? -scale : scale;
  for (std::int64_t d = lane; alive && d < form.features; d += kWarp)
    grad[offset + d] = by * (grad[offset + d] - along * z[offset + d]);
}

}  // namespace

template <class T>
void dense_attention_backward(const DenseForm& form, const DenseInput<T>& in, const T* stats,
                              const T* grad_out, const DenseGrads<T>& grad) {
  const std::int64_t heads = form.heads, tiles = dense_tiles<T>(form), rows = form.batch * heads,
                     scores = form.tokens * form.tokens;
  const DenseLengthsBuffer<T> buffer(form, in);
  const Scratch<T> centre(rows * form.tokens);
  const Scratch<double> numbers((grad.tau || grad.nu) ? 2 * rows * tiles : 0);
  double *of_tau = grad.tau ? numbers.get() : nullptr,
         *of_nu = grad.nu ? numbers.get() + rows * tiles : nullptr;
  const DenseArgs<T> args{form, in, buffer.lengths, stats, grad_out, centre.get()};
  const unsigned blocks = dense_blocks<T>(form);
  launch(targets_kernel<T>, blocks, kDenseThreads, 0, args, tiles, centre.get(), grad.q, of_tau,
         of_nu);
  if (grad.q) {
    launch(sources_kernel<T>, blocks, kDenseThreads, 0, args, tiles, grad.k, grad.v);
    const auto finish = [&](const T* z, const T* inverse, T* to) {
      if (inverse)
        launch(rows_kernel<T>, blocks_for(rows * form.tokens, kDenseThreads / kWarp), kDenseThreads,
               0, form, z, inverse, in.row, to);
    };
    finish(in.q, buffer.lengths.q, grad.q);
    finish(in.k, buffer.lengths.k, grad.k);
    finish(in.v, buffer.lengths.v, grad.v);
  }
  if (grad.bias) {
    const std::int64_t windows =
                           form.batch > kBiasParts ? (form.batch + kBiasParts - 1) / kBiasParts : 1,
                       parts = (form.batch + windows - 1) / windows;
    const Scratch<T> partial(parts * heads * scores);
    launch(bias_kernel<T>, blocks_for(parts * heads * tiles * tiles, 1), kDenseThreads, 0, args,
           tiles, windows, partial.get());
    launch(parts_kernel<T>, blocks_for(heads * scores, 256), 256, 0, parts, heads * scores,
           static_cast<const T*>(partial.get()), grad.bias);
  }
  const auto total = [&](T* to, std::int64_t step, const double* partial) {
    const std::int64_t count = step == 0 ? 1 : heads;
    if (to)
      launch(numbers_kernel<T>, blocks_for(count, 1), kDenseThreads, 0, form.batch, heads, tiles,
             count, partial, to);
  };
  total(grad.tau, form.tau_step, of_tau);
  total(grad.nu, form.nu_step, of_nu);
}

template void dense_attention_backward(const DenseForm&, const DenseInput<float>&, const float*,
                                       const float*, const DenseGrads<float>&);
template void dense_attention_backward(const DenseForm&, const DenseInput<double>&, const double*,
                                       const double*, const DenseGrads<double>&);

}  // namespace lipgrad::cuda
