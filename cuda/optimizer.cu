#include <lipgrad/ops/kernels/optimizer.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "reduce.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 4096;  // elements of one tensor that a block handles

// Which piece of which tensor.
struct Chunk {
  std::int32_t tensor, piece;
};

// One tensor with what the rule needs of it.
template <class T>
struct SgdItem {
  SgdTensor<T> t;
  T decay, lr;
};
template <class T>
struct AdamItem {
  AdamTensor<T> t;
  T shrink;  // what param is multiplied by first
  T decay;   // added to the gradient, times param
  T step_size, root_correction;
};
template <class T>
struct SquaresItem {
  std::int64_t n;
  const T* x;
  std::int64_t first;  // the number of its first piece
};

std::int64_t pieces_of(std::int64_t n) { return (n + kPiece - 1) / kPiece; }

// Items and the table of their pieces, in device memory by one copy.
template <class Item>
class DeviceList {
 public:
  // size(i): elements of item i.
  template <class Size>
  DeviceList(const std::vector<Item>& items, Size size) : DeviceList(items, table(items, size)) {}

  const Item* items() const { return reinterpret_cast<const Item*>(memory_.get()); }
  const Chunk* chunks() const {
    return reinterpret_cast<const Chunk*>(memory_.get() + items_bytes_);
  }
  std::int64_t pieces() const { return pieces_; }

 private:
  static_assert(sizeof(Item) % alignof(Chunk) == 0, "the table follows the items");

  DeviceList(const std::vector<Item>& items, const std::vector<Chunk>& chunks)
      : items_bytes_(static_cast<std::int64_t>(items.size() * sizeof(Item))),
        pieces_(static_cast<std::int64_t>(chunks.size())),
        memory_(items_bytes_ + pieces_ * static_cast<std::int64_t>(sizeof(Chunk))) {
    std::vector<char> both(items_bytes_ + chunks.size() * sizeof(Chunk));
    if (both.empty()) return;
    std::memcpy(both.data(), items.data(), items_bytes_);
    if (!chunks.empty())
      std::memcpy(both.data() + items_bytes_, chunks.data(), chunks.size() * sizeof(Chunk));
    upload(memory_.get(), both.data(), static_cast<std::int64_t>(both.size()));
  }

  template <class Size>
  static std::vector<Chunk> table(const std::vector<Item>& items, Size size) {
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < items.size(); ++i)
      for (std::int64_t p = 0; p < pieces_of(size(items[i])); ++p)
        chunks.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(p)});
    return chunks;
  }

  std::int64_t items_bytes_, pieces_;
  Scratch<char> memory_;
};

__device__ inline float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }
__device__ inline float root(float x) { return ::sqrtf(x); }
__device__ inline double root(double x) { return ::sqrt(x); }

template <class T>
__device__ bool on_16_bytes(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// One block a piece. param, grad, momentum: (n) of each tensor.
template <class T>
__global__ void sgd_kernel(const SgdItem<T>* items, const Chunk* chunks, T momentum,
                           bool nesterov) {
  constexpr int size = Pack<T>::size;
  const Chunk chunk = chunks[blockIdx.x];
  const SgdItem<T> item = items[chunk.tensor];
  const SgdTensor<T>& t = item.t;
  const bool vector = on_16_bytes(t.param) && on_16_bytes(t.grad) && on_16_bytes(t.momentum);
  const std::int64_t begin = static_cast<std::int64_t>(chunk.piece) * kPiece;
  const std::int64_t end = begin + kPiece < t.n ? begin + kPiece : t.n;
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * size; i < end;
       i += kThreads * size) {
    const std::int64_t count = end - i;
    Pack<T> p = load(t.param + i, vector, count, T(0));
    Pack<T> g = load(static_cast<const T*>(t.grad) + i, vector, count, T(0));
    if (item.decay != T(0)) {
#pragma unroll
      for (int k = 0; k < size; ++k) g.v[k] = multiply_add(item.decay, p.v[k], g.v[k]);
    }
    if (t.momentum) {
      Pack<T> m = load(t.momentum + i, vector, count, T(0));
#pragma unroll
      for (int k = 0; k < size; ++k) {
        m.v[k] = multiply_add(momentum, m.v[k], g.v[k]);
        g.v[k] = nesterov ? multiply_add(momentum, m.v[k], g.v[k]) : m.v[k];
      }
      store(t.momentum + i, vector, count, m);
    }
#pragma unroll
    for (int k = 0; k < size; ++k) p.v[k] = multiply_add(-item.lr, g.v[k], p.v[k]);
    store(t.param + i, vector, count, p);
  }
}

// One block a piece. param, grad, m, v: (n) of each tensor.
template <class T>
__global__ void adam_kernel(const AdamItem<T>* items, const Chunk* chunks, T rest1, T beta2,
                            T rest2, T eps) {
  constexpr int size = Pack<T>::size;
  const Chunk chunk = chunks[blockIdx.x];
  const AdamItem<T> item = items[chunk.tensor];
  const AdamTensor<T>& t = item.t;
  const bool vector =
      on_16_bytes(t.param) && on_16_bytes(t.grad) && on_16_bytes(t.m) && on_16_bytes(t.v);
  const std::int64_t begin = static_cast<std::int64_t>(chunk.piece) * kPiece;
  const std::int64_t end = begin + kPiece < t.n ? begin + kPiece : t.n;
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * size; i < end;
       i += kThreads * size) {
    const std::int64_t count = end - i;
    Pack<T> p = load(t.param + i, vector, count, T(0));
    const Pack<T> grad = load(static_cast<const T*>(t.grad) + i, vector, count, T(0));
    Pack<T> m = load(t.m + i, vector, count, T(0));
    Pack<T> v = load(t.v + i, vector, count, T(0));
#pragma unroll
    for (int k = 0; k < size; ++k) {
      T g = grad.v[k];
      if (item.shrink != T(1)) p.v[k] *= item.shrink;
      if (item.decay != T(0)) g = multiply_add(item.decay, p.v[k], g);
      m.v[k] = multiply_add(rest1, g - m.v[k], m.v[k]);
      v.v[k] = multiply_add(rest2, g * g, beta2 * v.v[k]);
      const T step = m.v[k] / (root(v.v[k]) / item.root_correction + eps);
      p.v[k] = multiply_add(-item.step_size, step, p.v[k]);
    }
    store(t.m + i, vector, count, m);
    store(t.v + i, vector, count, v);
    store(t.param + i, vector, count, p);
  }
}

// One block a piece: its sum of squares. The square of a float is exact in double.
template <class T>
__global__ void squares_kernel(const SquaresItem<T>* items, const Chunk* chunks, double* partial) {
  constexpr int size = Pack<T>::size;
  const Chunk chunk = chunks[blockIdx.x];
  const SquaresItem<T> item = items[chunk.tensor];
  const bool vector = on_16_bytes(item.x);
  const std::int64_t begin = static_cast<std::int64_t>(chunk.piece) * kPiece;
  const std::int64_t end = begin + kPiece < item.n ? begin + kPiece : item.n;
  double sum = 0;
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * size; i < end;
       i += kThreads * size) {
    const Pack<T> x = load(item.x + i, vector, end - i, T(0));
#pragma unroll
    for (int k = 0; k < size; ++k)
      sum = multiply_add(static_cast<double>(x.v[k]), static_cast<double>(x.v[k]), sum);
  }
  sum = block_reduce<kThreads>(sum, Sum(), 0.0);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block a tensor: the sum of its pieces, which follow one another.
template <class T>
__global__ void squares_finish_kernel(const SquaresItem<T>* items, const double* partial,
                                      double* sums) {
  constexpr int threads = 128;
  const SquaresItem<T> item = items[blockIdx.x];
  const std::int64_t pieces = (item.n + kPiece - 1) / kPiece;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < pieces; i += threads) sum += partial[item.first + i];
  sum = block_reduce<threads>(sum, Sum(), 0.0);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

template <class T>
void sgd(std::int64_t tensors, const SgdTensor<T>* list, SgdRule rule) {
  std::vector<SgdItem<T>> items;
  for (std::int64_t i = 0; i < tensors; ++i)
    items.push_back({list[i], static_cast<T>(list[i].weight_decay), static_cast<T>(list[i].lr)});
  const DeviceList<SgdItem<T>> device(items, [](const SgdItem<T>& item) { return item.t.n; });
  launch(sgd_kernel<T>, blocks_for(device.pieces(), 1), kThreads, 0, device.items(),
         device.chunks(), static_cast<T>(rule.momentum), rule.nesterov);
}

template <class T>
void adam(std::int64_t tensors, const AdamTensor<T>* list, AdamRule rule) {
  std::vector<AdamItem<T>> items;
  for (std::int64_t i = 0; i < tensors; ++i) {
    const AdamTensor<T>& t = list[i];
    const double step = static_cast<double>(t.step);
    items.push_back({t, static_cast<T>(rule.decoupled ? 1 - t.lr * t.weight_decay : 1.0),
                     static_cast<T>(rule.decoupled ? 0.0 : t.weight_decay),
                     static_cast<T>(t.lr / (1 - std::pow(rule.beta1, step))),
                     static_cast<T>(std::sqrt(1 - std::pow(rule.beta2, step)))});
  }
  const DeviceList<AdamItem<T>> device(items, [](const AdamItem<T>& item) { return item.t.n; });
  launch(adam_kernel<T>, blocks_for(device.pieces(), 1), kThreads, 0, device.items(),
         device.chunks(), static_cast<T>(1 - rule.beta1), static_cast<T>(rule.beta2),
         static_cast<T>(1 - rule.beta2), static_cast<T>(rule.eps));
}

template <class T>
void sums_of_squares(std::int64_t tensors, const std::int64_t* sizes, const T* const* x,
                     double* sums) {
  if (tensors == 0) return;
  std::vector<SquaresItem<T>> items;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < tensors; ++i) {
    items.push_back({sizes[i], x[i], first});
    first += pieces_of(sizes[i]);
  }
  const DeviceList<SquaresItem<T>> device(items, [](const SquaresItem<T>& item) { return item.n; });
  const Scratch<double> partial(device.pieces());
  launch(squares_kernel<T>, blocks_for(device.pieces(), 1), kThreads, 0, device.items(),
         device.chunks(), partial.get());
  launch(squares_finish_kernel<T>, blocks_for(tensors, 1), 128, 0, device.items(), partial.get(),
         sums);
}

#define INSTANTIATE(T)                                              \
  template void sgd(std::int64_t, const SgdTensor<T>*, SgdRule);    \
  template void adam(std::int64_t, const AdamTensor<T>*, AdamRule); \
  template void sums_of_squares(std::int64_t, const std::int64_t*, const T* const*, double*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
