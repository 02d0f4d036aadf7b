#include <lipgrad/graph/kernels/pair_norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/graph/kernels/pair_norm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/graph/kernels/pair_norm_rows.h>
#include <lipgrad/ops/kernels/column_blocks.h>

#include <lipgrad/ops/kernels/column_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

// y = a x - b z - shift; without z, shift where they are null.
template <class T>
HWY_INLINE void combine_row(std::int64_t n, T a, const T* x, T b, const T* z, const T* shift,
                            T* y) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V va(a), vb(-b);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    V v = va * get(x + i, count);
    if (z) v = fma(vb, get(z + i, count), v);
    if (shift) v = v - get(shift + i, count);
    put(v, y + i, count);
  }
}

// y = a (x - mean).
template <class T>
HWY_INLINE void centre_row(std::int64_t n, T a, const T* x, const T* mean, T* y) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V factor(a);
  for (std::int64_t i = 0; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    put(factor * (get(x + i, count) - get(mean + i, count)), y + i, count);
  }
}

template <class T>
void add(std::int64_t rows, std::int64_t cols, const T* x, T* sums) {
  for_heights(rows, [=](std::int64_t r, std::int64_t height)
                        HWY_ATTR { add_columns(height, cols, x + r * cols, sums); });
}

template <class T>
void add_with_roots(std::int64_t rows, std::int64_t cols, double eps, const T* x, T* sums,
                    T* root) {
  for_heights(rows, [=](std::int64_t first, std::int64_t height) HWY_ATTR {
    add_columns(height, cols, x + first * cols, sums);
    for (std::int64_t r = first; r < first + height; ++r) {
      const T* row = x + r * cols;
      root[r] = static_cast<T>(std::sqrt(eps + double(dot_row(cols, row, row))));
    }
  });
}

template <class T>
double add_with_dot(std::int64_t rows, std::int64_t cols, const T* x, const T* with, T* sums) {
  double dot = 0;
  for_heights(rows, [=, &dot](std::int64_t first, std::int64_t height) HWY_ATTR {
    add_columns(height, cols, x + first * cols, sums);
    for (std::int64_t r = first; r < first + height; ++r)
      dot += double(dot_row(cols, x + r * cols, with + r * cols));
  });
  return dot;
}

template <class T>
double deviations(std::int64_t rows, std::int64_t cols, const T* x, const T* mean) {
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) sum += double(distance_row(cols, x + r * cols, mean));
  return sum;
}

template <class T>
void centre(std::int64_t rows, std::int64_t cols, T factor, const T* x, const T* mean, T* y) {
  for (std::int64_t r = 0; r < rows; ++r)
    centre_row(cols, factor, x + r * cols, mean, y + r * cols);
}

template <class T>
void individually(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x,
                  const T* mean, T* y, T* root) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double length = std::sqrt(eps + double(distance_row(cols, x + r * cols, mean)));
    root[r] = static_cast<T>(length);
    centre_row(cols, static_cast<T>(scale / length), x + r * cols, mean, y + r * cols);
  }
}

template <class T>
void simultaneously(std::int64_t rows, std::int64_t cols, double scale, const T* x, const T* root,
                    const T* mean, T* y) {
  for (std::int64_t r = 0; r < rows; ++r)
    combine_row<T>(cols, static_cast<T>(scale / root[r]), x + r * cols, 0, nullptr, mean,
                   y + r * cols);
}

template <class T>
void backward(std::int64_t rows, std::int64_t cols, T factor, T along, const T* y, const T* gy,
              const T* mean, T* gx) {
  using V = Simd<T>;
  const std::int64_t lanes = V::lanes();
  const V a(factor), b(-along);
  for (std::int64_t r = 0; r < rows; ++r, y += cols, gy += cols, gx += cols) {
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      const V v = a * (get(gy + i, count) - get(mean + i, count));
      put(fma(b, get(y + i, count), v), gx + i, count);
    }
  }
}

template <class T>
void backward_individually(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                           const T* root, const T* gy, T* gx, T* sums) {
  for_heights(rows, [=](std::int64_t first, std::int64_t height) HWY_ATTR {
    for (std::int64_t r = first; r < first + height; ++r) {
      const double along = double(dot_row(cols, gy + r * cols, y + r * cols));
      combine_row<T>(cols, static_cast<T>(scale / root[r]), gy + r * cols,
                     static_cast<T>(along / (scale * root[r])), y + r * cols, nullptr,
                     gx + r * cols);
    }
    add_columns(height, cols, gx + first * cols, sums);
  });
}

template <class T>
void subtract(std::int64_t rows, std::int64_t cols, const T* shift, T* gx) {
  for (std::int64_t r = 0; r < rows; ++r)
    combine_row<T>(cols, 1, gx + r * cols, 0, nullptr, shift, gx + r * cols);
}

template <class T>
void backward_simultaneously(std::int64_t rows, std::int64_t cols, double scale, const T* x,
                             const T* root, const T* gy, const T* shift, T* gx) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double length = root[r];
    const double along = double(dot_row(cols, gy + r * cols, x + r * cols)) / (length * length);
    combine_row<T>(cols, static_cast<T>(scale / length), gy + r * cols,
                   static_cast<T>(scale * along / length), x + r * cols, shift, gx + r * cols);
  }
}

template <class T>
PairNormRows<T> table() {
  return {add<T>,
          add_with_roots<T>,
          add_with_dot<T>,
          deviations<T>,
          centre<T>,
          individually<T>,
          simultaneously<T>,
          backward<T>,
          backward_individually<T>,
          subtract<T>,
          backward_simultaneously<T>};
}

}  // namespace

PairNormRows<float> pair_norm_rows_f32() { return table<float>(); }
PairNormRows<double> pair_norm_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(pair_norm_rows_f32);
HWY_EXPORT(pair_norm_rows_f64);

namespace {

PairNormRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(pair_norm_rows_f32)(); }
PairNormRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(pair_norm_rows_f64)(); }

template <class T>
std::vector<T> mean_of_rows(const ColumnBlocks& cut, const std::vector<T>& sums, std::int64_t rows,
                            std::int64_t cols) {
  std::vector<T> mean(cols);
  cut.add_up(sums, 1 / double(rows), mean.data());
  return mean;
}

}  // namespace

template <class T>
void pair_norm(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x, T* y,
               T* root) {
  const PairNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  // Each block, while it is in the cache, gives its own mean m and the squares about it. About the
  // mean of all rows they are larger by n |m - mean|^2: one pass over memory, nothing cancels.
  std::vector<T> means = cut.partial_sums<T>();
  std::vector<double> squares(cut.blocks());
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    T* m = means.data() + block * cols;
    f.add(count, cols, x + first * cols, m);
    for (std::int64_t c = 0; c < cols; ++c) m[c] /= static_cast<T>(count);
    squares[block] = f.deviations(count, cols, x + first * cols, m);
  });
  std::vector<double> total(cols);
  for (std::int64_t b = 0; b < cut.blocks(); ++b)
    for (std::int64_t c = 0; c < cols; ++c)
      total[c] += double(cut.rows_of(b)) * double(means[b * cols + c]);
  std::vector<T> mean(cols);
  for (std::int64_t c = 0; c < cols; ++c) mean[c] = static_cast<T>(total[c] / double(rows));
  double sum = 0;
  for (std::int64_t b = 0; b < cut.blocks(); ++b) {
    double between = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      const double d = double(means[b * cols + c]) - double(mean[c]);
      between += d * d;
    }
    sum += squares[b] + double(cut.rows_of(b)) * between;
  }
  *root = static_cast<T>(std::sqrt(eps + sum / double(rows)));
  const T factor = static_cast<T>(scale / *root);
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.centre(count, cols, factor, x + first * cols, mean.data(), y + first * cols);
  });
}

template <class T>
void pair_norm_backward(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                        const T* root, const T* gy, T* gx) {
  const PairNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> sums = cut.partial_sums<T>();
  std::vector<double> dots(cut.blocks());
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    dots[block] = f.add_with_dot(count, cols, gy + first * cols, y + first * cols,
                                 sums.data() + block * cols);
  });
  double dot = 0;
  for (const double d : dots) dot += d;
  // The mean of y is zero, so that of v is scale mean(gy) / root.
  const std::vector<T> mean = mean_of_rows(cut, sums, rows, cols);
  const T factor = static_cast<T>(scale / *root);
  const T along = static_cast<T>(dot / (scale * double(rows) * *root));
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.backward(count, cols, factor, along, y + first * cols, gy + first * cols, mean.data(),
               gx + first * cols);
  });
}

template <class T>
void pair_norm_si(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x, T* y,
                  T* root) {
  const PairNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> sums = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    f.add(count, cols, x + first * cols, sums.data() + block * cols);
  });
  const std::vector<T> mean = mean_of_rows(cut, sums, rows, cols);
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.individually(count, cols, scale, eps, x + first * cols, mean.data(), y + first * cols,
                   root + first);
  });
}

template <class T>
void pair_norm_si_backward(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                           const T* root, const T* gy, T* gx) {
  const PairNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> sums = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    f.backward_individually(count, cols, scale, y + first * cols, root + first, gy + first * cols,
                            gx + first * cols, sums.data() + block * cols);
  });
  const std::vector<T> shift = mean_of_rows(cut, sums, rows, cols);
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.subtract(count, cols, shift.data(), gx + first * cols);
  });
}

template <class T>
void pair_norm_scs(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x, T* y,
                   T* root) {
  const PairNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> sums = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    f.add_with_roots(count, cols, eps, x + first * cols, sums.data() + block * cols, root + first);
  });
  const std::vector<T> mean = mean_of_rows(cut, sums, rows, cols);
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.simultaneously(count, cols, scale, x + first * cols, root + first, mean.data(),
                     y + first * cols);
  });
}

template <class T>
void pair_norm_scs_backward(std::int64_t rows, std::int64_t cols, double scale, const T* x,
                            const T* root, const T* gy, T* gx) {
  const PairNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> sums = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    f.add(count, cols, gy + first * cols, sums.data() + block * cols);
  });
  const std::vector<T> shift = mean_of_rows(cut, sums, rows, cols);
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.backward_simultaneously(count, cols, scale, x + first * cols, root + first, gy + first * cols,
                              shift.data(), gx + first * cols);
  });
}

#define INSTANTIATE(T)                                                                         \
  template void pair_norm(std::int64_t, std::int64_t, double, double, const T*, T*, T*);       \
  template void pair_norm_backward(std::int64_t, std::int64_t, double, const T*, const T*,     \
                                   const T*, T*);                                              \
  template void pair_norm_si(std::int64_t, std::int64_t, double, double, const T*, T*, T*);    \
  template void pair_norm_si_backward(std::int64_t, std::int64_t, double, const T*, const T*,  \
                                      const T*, T*);                                           \
  template void pair_norm_scs(std::int64_t, std::int64_t, double, double, const T*, T*, T*);   \
  template void pair_norm_scs_backward(std::int64_t, std::int64_t, double, const T*, const T*, \
                                       const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
