#include <lipgrad/ops/kernels/optimizer.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/optimizer_cpu.cpp>
#include <hwy/foreach_target.h>

#include <cmath>
#include <vector>

#include <lipgrad/ops/kernels/rows_cpu.h>
#include <lipgrad/ops/kernels/simd-inl.h>

#ifndef LIPGRAD_OPTIMIZER_COEFFICIENTS
#define LIPGRAD_OPTIMIZER_COEFFICIENTS
namespace lipgrad::cpu {

struct AdamCoefficients {
  double shrink;  // what param is multiplied by first
  double decay;   // added to the gradient, times param
  double beta1, beta2, step_size, root_correction, eps;
};

}  // namespace lipgrad::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void sgd_row(const SgdTensor<T>& t, SgdRule rule, std::int64_t begin, std::int64_t end) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V decay(t.weight_decay), momentum(rule.momentum), minus_lr(-t.lr);
  for (std::int64_t i = begin; i < end; i += lanes) {
    const std::int64_t count = std::min(lanes, end - i);
    const V p = get(t.param + i, count);
    V g = get(t.grad + i, count);
    if (t.weight_decay != 0) g = fma(decay, p, g);
    if (t.momentum) {
      const V m = fma(momentum, get(t.momentum + i, count), g);
      put(m, t.momentum + i, count);
      g = rule.nesterov ? fma(momentum, m, g) : m;
    }
    put(fma(minus_lr, g, p), t.param + i, count);
  }
}

template <class T>
void adam_row(const AdamTensor<T>& t, const AdamCoefficients& c, std::int64_t begin,
              std::int64_t end) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V decay(c.decay), shrink(c.shrink), rest1(1 - c.beta1), beta2(c.beta2), rest2(1 - c.beta2);
  const V minus_step(-c.step_size), correction(c.root_correction), eps(c.eps);
  for (std::int64_t i = begin; i < end; i += lanes) {
    const std::int64_t count = std::min(lanes, end - i);
    V p = get(t.param + i, count), g = get(t.grad + i, count);
    if (c.shrink != 1) p = p * shrink;
    if (c.decay != 0) g = fma(decay, p, g);
    V m = get(t.m + i, count);
    m = fma(rest1, g - m, m);
    const V v = fma(rest2, g * g, beta2 * get(t.v + i, count));
    put(m, t.m + i, count);
    put(v, t.v + i, count);
    put(fma(minus_step, m / (sqrt(v) / correction + eps), p), t.param + i, count);
  }
}

using Doubles = hn::ScalableTag<double>;

HWY_INLINE hn::Vec<Doubles> load_doubles(const float* x) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), x));
}
HWY_INLINE hn::Vec<Doubles> load_doubles(const double* x) { return hn::LoadU(Doubles(), x); }

// The sum of the squares in double; the square of a float is exact.
template <class T>
double squares_row(std::int64_t n, const T* x) {
  const Doubles d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;  // four sums, as an addition takes four cycles
  const auto add = [&](const T* from) HWY_ATTR {
    const auto va = load_doubles(from), vb = load_doubles(from + lanes);
    const auto vc = load_doubles(from + 2 * lanes), ve = load_doubles(from + 3 * lanes);
    a = hn::MulAdd(va, va, a);
    b = hn::MulAdd(vb, vb, b);
    c = hn::MulAdd(vc, vc, c);
    e = hn::MulAdd(ve, ve, e);
  };
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) add(x + i);
  if (i < n) {
    T rest[4 * HWY_MAX_BYTES / sizeof(double)] = {};
    std::copy(x + i, x + n, rest);
    add(rest);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace

void sgd_f32(const SgdTensor<float>& t, SgdRule rule, std::int64_t begin, std::int64_t end) {
  sgd_row(t, rule, begin, end);
}
void sgd_f64(const SgdTensor<double>& t, SgdRule rule, std::int64_t begin, std::int64_t end) {
  sgd_row(t, rule, begin, end);
}
void adam_f32(const AdamTensor<float>& t, const AdamCoefficients& c, std::int64_t begin,
              std::int64_t end) {
  adam_row(t, c, begin, end);
}
void adam_f64(const AdamTensor<double>& t, const AdamCoefficients& c, std::int64_t begin,
              std::int64_t end) {
  adam_row(t, c, begin, end);
}
double squares_f32(std::int64_t n, const float* x) { return squares_row(n, x); }
double squares_f64(std::int64_t n, const double* x) { return squares_row(n, x); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);
HWY_EXPORT(squares_f32);
HWY_EXPORT(squares_f64);

namespace {

constexpr std::int64_t piece = 16384;  // elements of one tensor

// Calls f(tensor, begin, end) for pieces of all tensors, on the threads; small tensors share a
// block.
template <class Size, class F>
void for_pieces(std::int64_t tensors, Size size, F f) {
  struct Piece {
    std::int64_t tensor, begin, end;
  };
  std::vector<Piece> pieces;
  std::vector<std::int64_t> blocks = {0};  // where each block of pieces begins
  std::int64_t filled = 0;
  for (std::int64_t t = 0; t < tensors; ++t) {
    for (std::int64_t begin = 0; begin < size(t); begin += piece) {
      const std::int64_t end = std::min(size(t), begin + piece);
      if (filled > 0 && filled + end - begin > piece) {
        blocks.push_back(static_cast<std::int64_t>(pieces.size()));
        filled = 0;
      }
      pieces.push_back({t, begin, end});
      filled += end - begin;
    }
  }
  blocks.push_back(static_cast<std::int64_t>(pieces.size()));
  parallel_for(static_cast<std::int64_t>(blocks.size()) - 1, 1,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = blocks[first]; i < blocks[last]; ++i)
                   f(pieces[i].tensor, pieces[i].begin, pieces[i].end);
               });
}

}  // namespace

template <class T>
void sgd(std::int64_t tensors, const SgdTensor<T>* list, SgdRule rule) {
  for_pieces(
      tensors, [&](std::int64_t t) { return list[t].n; },
      [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
        if constexpr (sizeof(T) == 4) {
          HWY_DYNAMIC_DISPATCH(sgd_f32)(list[t], rule, begin, end);
        } else {
          HWY_DYNAMIC_DISPATCH(sgd_f64)(list[t], rule, begin, end);
        }
      });
}

template <class T>
void adam(std::int64_t tensors, const AdamTensor<T>* list, AdamRule rule) {
  std::vector<AdamCoefficients> coefficients(tensors);
  for (std::int64_t t = 0; t < tensors; ++t) {
    const AdamTensor<T>& tensor = list[t];
    const double step = static_cast<double>(tensor.step);
    coefficients[t] = {rule.decoupled ? 1 - tensor.lr * tensor.weight_decay : 1.0,
                       rule.decoupled ? 0.0 : tensor.weight_decay,
                       rule.beta1,
                       rule.beta2,
                       tensor.lr / (1 - std::pow(rule.beta1, step)),
                       std::sqrt(1 - std::pow(rule.beta2, step)),
                       rule.eps};
  }
  for_pieces(
      tensors, [&](std::int64_t t) { return list[t].n; },
      [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
        if constexpr (sizeof(T) == 4) {
          HWY_DYNAMIC_DISPATCH(adam_f32)(list[t], coefficients[t], begin, end);
        } else {
          HWY_DYNAMIC_DISPATCH(adam_f64)(list[t], coefficients[t], begin, end);
        }
      });
}

template <class T>
void sums_of_squares(std::int64_t tensors, const std::int64_t* sizes, const T* const* x,
                     double* sums) {
  std::vector<std::int64_t> first(tensors + 1);  // number of each tensor's first piece
  for (std::int64_t t = 0; t < tensors; ++t)
    first[t + 1] = first[t] + (sizes[t] + piece - 1) / piece;
  std::vector<double> partial(first[tensors]);
  for_pieces(
      tensors, [&](std::int64_t t) { return sizes[t]; },
      [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
        double& sum = partial[first[t] + begin / piece];
        if constexpr (sizeof(T) == 4) {
          sum = HWY_DYNAMIC_DISPATCH(squares_f32)(end - begin, x[t] + begin);
        } else {
          sum = HWY_DYNAMIC_DISPATCH(squares_f64)(end - begin, x[t] + begin);
        }
      });
  for (std::int64_t t = 0; t < tensors; ++t) {
    sums[t] = 0;
    for (std::int64_t i = first[t]; i < first[t + 1]; ++i) sums[t] += partial[i];
  }
}

#define INSTANTIATE(T)                                              \
  template void sgd(std::int64_t, const SgdTensor<T>*, SgdRule);    \
  template void adam(std::int64_t, const AdamTensor<T>*, AdamRule); \
  template void sums_of_squares(std::int64_t, const std::int64_t*, const T* const*, double*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
