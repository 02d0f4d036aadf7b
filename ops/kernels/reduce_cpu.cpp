#include <lipgrad/ops/kernels/reduce.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/reduce_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/rows_cpu.h>
#include <lipgrad/ops/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// What is summed: x, or (x - mean)^2.
template <class T>
struct Plain {
  HWY_INLINE Simd<T> operator()(Simd<T> x, Simd<T>) const { return x; }
};
template <class T>
struct Deviation {
  HWY_INLINE Simd<T> operator()(Simd<T> x, Simd<T> mean) const { return (x - mean) * (x - mean); }
};

// The sum of f over a row: chains of 1024 / (4 lanes) terms, their sums added in double.
template <class F, class T>
double sum_row(std::int64_t n, const T* x, T mean_value) {
  using V = Simd<T>;
  const F f;
  const std::int64_t lanes = V::lanes();
  const V mean(mean_value);
  double sum = 0;
  for (std::int64_t start = 0; start < n; start += 1024) {
    const std::int64_t end = std::min(n, start + 1024);
    std::int64_t i = start;
    V a(0.0), b(0.0), c(0.0), d(0.0);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      a = a + f(load(x + i), mean);
      b = b + f(load(x + i + lanes), mean);
      c = c + f(load(x + i + 2 * lanes), mean);
      d = d + f(load(x + i + 3 * lanes), mean);
    }
    for (; i + lanes <= end; i += lanes) a = a + f(load(x + i), mean);
    // Without a mean to subtract, mean is 0: the missing lanes add 0 either way.
    if (i < end) b = b + f(get(x + i, end - i, mean), mean);
    sum += sum_of_lanes((a + b) + (c + d));
  }
  return sum;
}

// acc(cols) += the column sums of f over rows that are ld apart; chains of rows / 8 terms.
template <class F, class T>
void add_columns(std::int64_t rows, std::int64_t cols, std::int64_t ld, const T* x, const T* mean,
                 T* acc) {
  using V = Simd<T>;
  const F f;
  const std::int64_t lanes = V::lanes();
  std::int64_t r = 0;
  for (; r + 8 <= rows; r += 8, x += 8 * ld) {
    for (std::int64_t c = 0; c < cols; c += lanes) {
      const std::int64_t count = std::min(lanes, cols - c);
      const V m = mean ? get(mean + c, count) : V(0.0);
      const auto at = [&](std::int64_t k) HWY_ATTR { return f(get(x + k * ld + c, count), m); };
      const V s = ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
      put(get(acc + c, count) + s, acc + c, count);
    }
  }
  for (; r < rows; ++r, x += ld) {
    for (std::int64_t c = 0; c < cols; c += lanes) {
      const std::int64_t count = std::min(lanes, cols - c);
      const V m = mean ? get(mean + c, count) : V(0.0);
      put(get(acc + c, count) + f(get(x + c, count), m), acc + c, count);
    }
  }
}

template <class T>
double row_of(bool deviation, std::int64_t n, const T* x, T mean) {
  return deviation ? sum_row<Deviation<T>>(n, x, mean) : sum_row<Plain<T>>(n, x, mean);
}
template <class T>
void columns_of(std::int64_t rows, std::int64_t cols, std::int64_t ld, const T* x, const T* mean,
                T* acc) {
  if (mean) {
    add_columns<Deviation<T>>(rows, cols, ld, x, mean, acc);
  } else {
    add_columns<Plain<T>>(rows, cols, ld, x, mean, acc);
  }
}

}  // namespace

double sum_row_f32(bool deviation, std::int64_t n, const float* x, float mean) {
  return row_of(deviation, n, x, mean);
}
double sum_row_f64(bool deviation, std::int64_t n, const double* x, double mean) {
  return row_of(deviation, n, x, mean);
}
void add_columns_f32(std::int64_t rows, std::int64_t cols, std::int64_t ld, const float* x,
                     const float* mean, float* acc) {
  columns_of(rows, cols, ld, x, mean, acc);
}
void add_columns_f64(std::int64_t rows, std::int64_t cols, std::int64_t ld, const double* x,
                     const double* mean, double* acc) {
  columns_of(rows, cols, ld, x, mean, acc);
}

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(sum_row_f32);
HWY_EXPORT(sum_row_f64);
HWY_EXPORT(add_columns_f32);
HWY_EXPORT(add_columns_f64);

namespace {

double sum_row(bool deviation, std::int64_t n, const float* x, float mean) {
  return HWY_DYNAMIC_DISPATCH(sum_row_f32)(deviation, n, x, mean);
}
double sum_row(bool deviation, std::int64_t n, const double* x, double mean) {
  return HWY_DYNAMIC_DISPATCH(sum_row_f64)(deviation, n, x, mean);
}
void add_columns(std::int64_t rows, std::int64_t cols, std::int64_t ld, const float* x,
                 const float* mean, float* acc) {
  HWY_DYNAMIC_DISPATCH(add_columns_f32)(rows, cols, ld, x, mean, acc);
}
void add_columns(std::int64_t rows, std::int64_t cols, std::int64_t ld, const double* x,
                 const double* mean, double* acc) {
  HWY_DYNAMIC_DISPATCH(add_columns_f64)(rows, cols, ld, x, mean, acc);
}

// y = scale * sum of x, or of (x - mean)^2 where mean (the shape of y) is given.
template <class T>
void reduce_rows(std::int64_t outer, std::int64_t n, double scale, const T* x, const T* mean,
                 T* y) {
  if (n <= cheap_grain) {
    parallel_for(outer, rows_per_block(cheap_grain, n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        y[r] =
            static_cast<T>(scale * sum_row(mean != nullptr, n, x + r * n, mean ? mean[r] : T(0)));
    });
    return;
  }
  for (std::int64_t r = 0; r < outer; ++r) {
    y[r] = static_cast<T>(
        scale * sum_of_blocks(n, cheap_grain, [&](std::int64_t begin, std::int64_t end) {
          return sum_row(mean != nullptr, end - begin, x + r * n + begin, mean ? mean[r] : T(0));
        }));
  }
}

template <class T>
void reduce_columns(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale,
                    const T* x, const T* mean, T* y) {
  constexpr std::int64_t most_rows = 1024;
  const std::int64_t tile =
      std::min<std::int64_t>(inner, 1024);  // columns whose sums stay in the L1 cache
  const std::int64_t tiles = (inner + tile - 1) / tile;
  const std::int64_t rows = std::min(most_rows, std::max<std::int64_t>(32, 2 * cheap_grain / tile));
  const std::int64_t blocks = (n + rows - 1) / rows;
  if (blocks <= 1) {
    parallel_for(outer * tiles, rows_per_block(cheap_grain, n * tile),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t o = i / tiles, c = i % tiles * tile,
                                        cols = std::min(tile, inner - c);
                     T* to = y + o * inner + c;
                     std::fill(to, to + cols, T(0));
                     add_columns(n, cols, inner, x + o * n * inner + c,
                                 mean ? mean + o * inner + c : nullptr, to);
                     if (scale != 1)
                       for (std::int64_t k = 0; k < cols; ++k)
                         to[k] = static_cast<T>(to[k] * scale);
                   }
                 });
    return;
  }
  std::vector<T> partial(blocks * inner);
  for (std::int64_t o = 0; o < outer; ++o) {
    parallel_for(blocks * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = i / tiles, c = i % tiles * tile, cols = std::min(tile, inner - c);
        T* to = partial.data() + b * inner + c;
        std::fill(to, to + cols, T(0));
        add_columns(std::min(rows, n - b * rows), cols, inner, x + (o * n + b * rows) * inner + c,
                    mean ? mean + o * inner + c : nullptr, to);
      }
    });
    parallel_for(inner, rows_per_block(cheap_grain, blocks),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::vector<double> total(end - begin);
                   for (std::int64_t b = 0; b < blocks; ++b)
                     for (std::int64_t c = begin; c < end; ++c)
                       total[c - begin] += partial[b * inner + c];
                   for (std::int64_t c = begin; c < end; ++c)
                     y[o * inner + c] = static_cast<T>(scale * total[c - begin]);
                 });
  }
}

template <class T>
void reduce(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale, const T* x,
            const T* mean, T* y) {
  if (outer == 0 || inner == 0) return;
  if (n == 0) {
    std::fill(y, y + outer * inner, T(0 * scale));
  } else if (inner == 1) {
    reduce_rows(outer, n, scale, x, mean, y);
  } else {
    reduce_columns(outer, n, inner, scale, x, mean, y);
  }
}

}  // namespace

template <class T>
void sum(std::int64_t outer, std::int64_t n, std::int64_t inner, double scale, const T* x, T* y) {
  reduce<T>(outer, n, inner, scale, x, nullptr, y);
}

template <class T>
void var(std::int64_t outer, std::int64_t n, std::int64_t inner, double correction, const T* x,
         T* mean, T* y) {
  reduce<T>(outer, n, inner, 1.0 / n, x, nullptr, mean);
  reduce<T>(outer, n, inner, 1.0 / (n - correction), x, mean, y);
}

template <class T>
void var_backward(std::int64_t outer, std::int64_t n, std::int64_t inner, double correction,
                  const T* x, const T* mean, const T* gy, T* gx) {
  const T scale = static_cast<T>(2 / (n - correction));
  parallel_for(
      outer * n, rows_per_block(cheap_grain, inner), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t small = i / n * inner;
          for (std::int64_t c = 0; c < inner; ++c)
            gx[i * inner + c] = gy[small + c] * scale * (x[i * inner + c] - mean[small + c]);
        }
      });
}

#define INSTANTIATE(T)                                                                             \
  template void sum(std::int64_t, std::int64_t, std::int64_t, double, const T*, T*);               \
  template void var(std::int64_t, std::int64_t, std::int64_t, double, const T*, T*, T*);           \
  template void var_backward(std::int64_t, std::int64_t, std::int64_t, double, const T*, const T*, \
                             const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
