#pragma once

#include <cstdint>

#include <lipgrad/core/tensor.h>
#include <lipgrad/core/threads.h>

namespace lipgrad {

// Kernels in one line, for ops of one's own: y[i] = f(x[i]), or y[i] = f(x[i], g[i]) for two
// tensors of the same shape, dtype and device. f is called with float or double and runs on several
// threads. CPU only; Error names `op` otherwise.

namespace detail {
void check_map(const char* op, const Tensor& x, const Tensor* g);
inline constexpr std::int64_t map_grain = 1 << 14;
}  // namespace detail

template <class F>
Tensor map(const char* op, const Tensor& x, F&& f) {
  detail::check_map(op, x, nullptr);
  Tensor y = empty_like(x);
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.mutable_data<T>();
    parallel_for(x.numel(), detail::map_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(f(from[i]));
    });
  });
  return y;
}

template <class F>
Tensor map(const char* op, const Tensor& x, const Tensor& g, F&& f) {
  detail::check_map(op, x, &g);
  Tensor y = empty_like(x);
  visit_float(op, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    const T* with = g.data<T>();
    T* to = y.mutable_data<T>();
    parallel_for(x.numel(), detail::map_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(f(from[i], with[i]));
    });
  });
  return y;
}

}  // namespace lipgrad
