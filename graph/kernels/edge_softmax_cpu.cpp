#include <lipgrad/graph/kernels/edge_softmax.h>

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/edge_softmax_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/graph/kernels/edge_rows-inl.h>

namespace lipgrad::cpu {
#ifndef LIPGRAD_EDGE_SOFTMAX_CPU_ARGS
#define LIPGRAD_EDGE_SOFTMAX_CPU_ARGS
namespace {
template <class T>
struct SoftmaxArgs {
  std::int64_t rows, heads;
  const std::int64_t* offsets;
  const T *x, *gy;  // scores, or y and its gradient
  T* out;
};
}  // namespace
#endif
}  // namespace lipgrad::cpu

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// Numbers that rows are taken together for, since most rows are short.
constexpr std::int64_t kGroup = 4096;

// The parts of a softmax over some entries of one row. kHeads: their number, or 0 for any.
template <class T, int kHeads>
struct Softmax {
  const SoftmaxArgs<T>& a;

  HWY_INLINE std::int64_t heads() const { return kHeads > 0 ? kHeads : a.heads; }

  void largest(std::int64_t from, std::int64_t to, T* top) const {
    std::fill_n(top, heads(), -std::numeric_limits<T>::infinity());
    for (std::int64_t e = from; e < to; ++e)
      for (std::int64_t h = 0; h < heads(); ++h) top[h] = std::max(top[h], a.x[e * heads() + h]);
  }
  // A NaN, which max() may lose, stays in the difference.
  void subtract(std::int64_t from, std::int64_t to, const T* top) const {
    const auto shift = [](T t) { return std::isfinite(t) ? t : T(0); };
    for (std::int64_t e = from; e < to; ++e)
      for (std::int64_t h = 0; h < heads(); ++h)
        a.out[e * heads() + h] = a.x[e * heads() + h] - shift(top[h]);
  }
  void exponentials(std::int64_t from, std::int64_t to) const {
    const std::int64_t end = to * heads(), lanes = Simd<T>::lanes();
    std::int64_t i = from * heads();
    for (; i + lanes <= end; i += lanes) store(exp(load(a.out + i)), a.out + i);
    if (i < end) store_part(exp(load_part(a.out + i, end - i)), a.out + i, end - i);
  }
  void sums(std::int64_t from, std::int64_t to, double* sum) const {
    std::fill_n(sum, heads(), 0.0);
    for (std::int64_t e = from; e < to; ++e)
      for (std::int64_t h = 0; h < heads(); ++h)
        sum[h] += static_cast<double>(a.out[e * heads() + h]);
  }
  void divide(std::int64_t from, std::int64_t to, const double* sum, T* factor) const {
    for (std::int64_t h = 0; h < heads(); ++h)
      factor[h] = static_cast<T>(sum[h] == 0 ? 0 : 1 / sum[h]);
    for (std::int64_t e = from; e < to; ++e)
      for (std::int64_t h = 0; h < heads(); ++h) a.out[e * heads() + h] *= factor[h];
  }
  // Of the gradient: the sums of y gy, and what comes of them.
  void products(std::int64_t from, std::int64_t to, double* sum) const {
    std::fill_n(sum, heads(), 0.0);
    for (std::int64_t i = from * heads(), end = to * heads(); i < end;)
      for (std::int64_t h = 0; h < heads(); ++h, ++i)
        sum[h] += static_cast<double>(a.x[i]) * static_cast<double>(a.gy[i]);
  }
  void gradients(std::int64_t from, std::int64_t to, const double* sum, T* factor) const {
    for (std::int64_t h = 0; h < heads(); ++h) factor[h] = static_cast<T>(sum[h]);
    for (std::int64_t i = from * heads(), end = to * heads(); i < end;)
      for (std::int64_t h = 0; h < heads(); ++h, ++i) a.out[i] = a.x[i] * (a.gy[i] - factor[h]);
  }
};

// Rows one behind the other, whose exponentials are computed together.
template <class T, int kHeads>
class ForwardPass {
 public:
  explicit ForwardPass(const SoftmaxArgs<T>& a)
      : softmax_{a}, top_(static_cast<std::size_t>(a.heads)), sum_(top_.size()) {}
  void begin(std::int64_t) {}
  void row(std::int64_t r) {
    const std::int64_t* offsets = softmax_.a.offsets;
    const std::int64_t from = offsets[r], to = offsets[r + 1];
    if (from == to) return;
    if (!rows_.empty() && from != offsets[rows_.back() + 1]) finish();
    rows_.push_back(r);
    softmax_.largest(from, to, top_.data());
    softmax_.subtract(from, to, top_.data());
    if ((to - offsets[rows_.front()]) * softmax_.heads() >= kGroup) finish();
  }
  void finish() {
    if (rows_.empty()) return;
    const std::int64_t* offsets = softmax_.a.offsets;
    softmax_.exponentials(offsets[rows_.front()], offsets[rows_.back() + 1]);
    for (const std::int64_t r : rows_) {
      softmax_.sums(offsets[r], offsets[r + 1], sum_.data());
      softmax_.divide(offsets[r], offsets[r + 1], sum_.data(), top_.data());
    }
    rows_.clear();
  }

 private:
  Softmax<T, kHeads> softmax_;
  std::vector<T> top_;
  std::vector<double> sum_;
  std::vector<std::int64_t> rows_;
};

template <class T, int kHeads>
struct BackwardPass {
  Softmax<T, kHeads> softmax;
  std::vector<T> factor;
  std::vector<double> sum;
  void begin(std::int64_t) {}
  void finish() {}
  void row(std::int64_t r) {
    const std::int64_t from = softmax.a.offsets[r], to = softmax.a.offsets[r + 1];
    softmax.products(from, to, sum.data());
    softmax.gradients(from, to, sum.data(), factor.data());
  }
};

// Calls f(piece, from, to) for the pieces of a hub, on all threads.
template <class F>
void each_piece(const RowBlocks& blocks, const std::int64_t* offsets, std::int64_t row, F&& f) {
  parallel_for(blocks.pieces(row), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p) {
      const std::int64_t from = offsets[row] + p * blocks.grain();
      f(p, from, std::min(offsets[row + 1], from + blocks.grain()));
    }
  });
}

template <class T, int kHeads>
void softmax_of(const SoftmaxArgs<T>& a) {
  const Softmax<T, kHeads> softmax{a};
  const std::int64_t heads = a.heads;
  const auto size = static_cast<std::size_t>(heads);
  const RowBlocks blocks(a.rows, a.offsets, std::max<std::int64_t>(64, 16384 / heads));
  for (const std::int64_t r : blocks.run([&] { return ForwardPass<T, kHeads>(a); })) {
    const std::int64_t pieces = blocks.pieces(r);
    std::vector<T> top(size * pieces);
    std::vector<double> sum(size * pieces);
    each_piece(blocks, a.offsets, r, [&](std::int64_t p, std::int64_t from, std::int64_t to) {
      softmax.largest(from, to, &top[p * heads]);
    });
    for (std::int64_t p = 1; p < pieces; ++p)
      for (std::int64_t h = 0; h < heads; ++h) top[h] = std::max(top[h], top[p * heads + h]);
    each_piece(blocks, a.offsets, r, [&](std::int64_t p, std::int64_t from, std::int64_t to) {
      softmax.subtract(from, to, top.data());
      softmax.exponentials(from, to);
      softmax.sums(from, to, &sum[p * heads]);
    });
    for (std::int64_t p = 1; p < pieces; ++p)
      for (std::int64_t h = 0; h < heads; ++h) sum[h] += sum[p * heads + h];
    each_piece(blocks, a.offsets, r, [&](std::int64_t p, std::int64_t from, std::int64_t to) {
      softmax.divide(from, to, sum.data(), &top[p * heads]);
    });
  }
}

template <class T, int kHeads>
void gradient_of(const SoftmaxArgs<T>& a) {
  const Softmax<T, kHeads> softmax{a};
  const std::int64_t heads = a.heads;
  const auto size = static_cast<std::size_t>(heads);
  const RowBlocks blocks(a.rows, a.offsets, std::max<std::int64_t>(64, 16384 / heads));
  const auto make = [&] {
    return BackwardPass<T, kHeads>{softmax, std::vector<T>(size), std::vector<double>(size)};
  };
  for (const std::int64_t r : blocks.run(make)) {
    const std::int64_t pieces = blocks.pieces(r);
    std::vector<T> factor(size * pieces);
    std::vector<double> sum(size * pieces);
    each_piece(blocks, a.offsets, r, [&](std::int64_t p, std::int64_t from, std::int64_t to) {
      softmax.products(from, to, &sum[p * heads]);
    });
    for (std::int64_t p = 1; p < pieces; ++p)
      for (std::int64_t h = 0; h < heads; ++h) sum[h] += sum[p * heads + h];
    each_piece(blocks, a.offsets, r, [&](std::int64_t p, std::int64_t from, std::int64_t to) {
      softmax.gradients(from, to, sum.data(), &factor[p * heads]);
    });
  }
}

#define LIPGRAD_EDGE_SOFTMAX(name, suffix, T)     \
  void name##_##suffix(const SoftmaxArgs<T>& a) { \
    switch (a.heads) {                            \
      case 1:                                     \
        return name##_of<T, 1>(a);                \
      case 4:                                     \
        return name##_of<T, 4>(a);                \
      case 8:                                     \
        return name##_of<T, 8>(a);                \
      default:                                    \
        return name##_of<T, 0>(a);                \
    }                                             \
  }
LIPGRAD_EDGE_SOFTMAX(softmax, f32, float)
LIPGRAD_EDGE_SOFTMAX(softmax, f64, double)
LIPGRAD_EDGE_SOFTMAX(gradient, f32, float)
LIPGRAD_EDGE_SOFTMAX(gradient, f64, double)
#undef LIPGRAD_EDGE_SOFTMAX

}  // namespace
}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {
HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);
HWY_EXPORT(gradient_f32);
HWY_EXPORT(gradient_f64);

template <class T>
void edge_softmax(std::int64_t rows, std::int64_t, std::int64_t heads, const std::int64_t* offsets,
                  const T* x, T* y) {
  if (heads == 0) return;
  const SoftmaxArgs<T> args{rows, heads, offsets, x, nullptr, y};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(softmax_f32)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(softmax_f64)(args);
  }
}

template <class T>
void edge_softmax_backward(std::int64_t rows, std::int64_t, std::int64_t heads,
                           const std::int64_t* offsets, const T* y, const T* gy, T* gx) {
  if (heads == 0) return;
  const SoftmaxArgs<T> args{rows, heads, offsets, y, gy, gx};
  if constexpr (sizeof(T) == 4) {
    HWY_DYNAMIC_DISPATCH(gradient_f32)(args);
  } else {
    HWY_DYNAMIC_DISPATCH(gradient_f64)(args);
  }
}

#define INSTANTIATE(T)                                                                      \
  template void edge_softmax(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, \
                             const T*, T*);                                                 \
  template void edge_softmax_backward(std::int64_t, std::int64_t, std::int64_t,             \
                                      const std::int64_t*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
