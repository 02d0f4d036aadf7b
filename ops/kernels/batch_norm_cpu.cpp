#include <lipgrad/ops/kernels/batch_norm.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <lipgrad/ops/kernels/batch_norm_cpu.cpp>
#include <hwy/foreach_target.h>

#include <lipgrad/ops/kernels/batch_norm_columns.h>
#include <lipgrad/ops/kernels/batch_norm_rows_cpu.h>
#include <lipgrad/ops/kernels/column_blocks.h>

#include <lipgrad/ops/kernels/column_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lipgrad::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void add(std::int64_t rows, std::int64_t cols, const T* x, T* sums) {
  for_heights(rows, [=](std::int64_t first, std::int64_t height)
                        HWY_ATTR { add_columns(height, cols, x + first * cols, sums); });
}

template <class T>
void add_squares(std::int64_t rows, std::int64_t cols, const T* x, const T* mean, T* sums) {
  for_heights(rows, [=](std::int64_t first, std::int64_t height) HWY_ATTR {
    const T* from = x + first * cols;
    add_sums(height, cols, sums, [=](std::int64_t r, std::int64_t c, std::int64_t count) HWY_ATTR {
      const Simd<T> d = get(from + r * cols + c, count) - get(mean + c, count);
      return d * d;
    });
  });
}

template <class T>
void add_products(std::int64_t rows, std::int64_t cols, const T* x, const T* shift, const T* gy,
                  T* plain, T* with_x) {
  for_heights(rows, [=](std::int64_t first, std::int64_t height) HWY_ATTR {
    const T *from = x + first * cols, *g = gy + first * cols;
    add_sums(height, cols, with_x,
             [=](std::int64_t r, std::int64_t c, std::int64_t count) HWY_ATTR {
               const Simd<T> d = get(from + r * cols + c, count) - get(shift + c, count);
               return get(g + r * cols + c, count) * d;
             });
    add_columns(height, cols, g, plain);
  });
}

template <class T>
void forward(std::int64_t rows, std::int64_t cols, const T* x, const T* shift, const T* scale,
             const T* bias, T* y) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      const Simd<T> d = get(x + i, count) - get(shift + i, count);
      put(fma(d, get(scale + i, count), get(bias + i, count)), y + i, count);
    }
  }
}

template <class T>
void backward(std::int64_t rows, std::int64_t cols, const T* x, const T* shift, const T* gy,
              const T* scale, const T* along, const T* down, T* gx) {
  const std::int64_t lanes = Simd<T>::lanes();
  for (std::int64_t r = 0; r < rows; ++r, x += cols, gy += cols, gx += cols) {
    for (std::int64_t i = 0; i < cols; i += lanes) {
      const std::int64_t count = std::min(lanes, cols - i);
      const Simd<T> d = get(x + i, count) - get(shift + i, count),
                    left = get(gy + i, count) - d * get(along + i, count) - get(down + i, count);
      put(get(scale + i, count) * left, gx + i, count);
    }
  }
}

template <class T>
BatchNormRows<T> table() {
  return {add<T>, add_squares<T>, add_products<T>, forward<T>, backward<T>};
}

}  // namespace

BatchNormRows<float> batch_norm_rows_f32() { return table<float>(); }
BatchNormRows<double> batch_norm_rows_f64() { return table<double>(); }

}  // namespace lipgrad::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lipgrad::cpu {

HWY_EXPORT(batch_norm_rows_f32);
HWY_EXPORT(batch_norm_rows_f64);

namespace {

BatchNormRows<float> rows_of(float) { return HWY_DYNAMIC_DISPATCH(batch_norm_rows_f32)(); }
BatchNormRows<double> rows_of(double) { return HWY_DYNAMIC_DISPATCH(batch_norm_rows_f64)(); }

}  // namespace

template <class T>
void column_moments(std::int64_t rows, std::int64_t cols, const T* x, T* moments) {
  const BatchNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  // Each block, while it is in the cache, gives its own means m and the squares about them; about
  // the mean of all rows they are larger by n (m - mean)^2: one pass over memory, nothing cancels.
  std::vector<T> means = cut.partial_sums<T>(), squares = cut.partial_sums<T>();
  cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
    T* mean = means.data() + block * cols;
    f.add(count, cols, x + first * cols, mean);
    for (std::int64_t c = 0; c < cols; ++c) mean[c] /= static_cast<T>(count);
    f.add_squares(count, cols, x + first * cols, mean, squares.data() + block * cols);
  });
  const double n = static_cast<double>(rows);
  std::vector<double> mean(cols), sum(cols);
  for (std::int64_t b = 0; b < cut.blocks(); ++b)
    for (std::int64_t c = 0; c < cols; ++c)
      mean[c] += static_cast<double>(cut.rows_of(b)) / n * means[b * cols + c];
  for (std::int64_t b = 0; b < cut.blocks(); ++b)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double d = means[b * cols + c] - mean[c];
      sum[c] += squares[b * cols + c] + static_cast<double>(cut.rows_of(b)) * d * d;
    }
  for (std::int64_t c = 0; c < cols; ++c) {
    moments[c] = static_cast<T>(mean[c]);
    moments[cols + c] = static_cast<T>(sum[c] / n);
  }
}

template <class T>
void column_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* moments,
                 const ColumnNorm<T>& by, T* y) {
  const BatchNormRows<T> f = rows_of(T());
  std::vector<T> shift(cols), scale(cols), bias(cols);
  for (std::int64_t c = 0; c < cols; ++c) {
    const NormColumn<T> column(c, cols, eps, moments, by);
    shift[c] = static_cast<T>(column.shift());
    scale[c] = static_cast<T>(column.scale());
    bias[c] = static_cast<T>(column.bias);
  }
  parallel_for(rows, rows_per_block(cheap_grain, cols), [&](std::int64_t begin, std::int64_t end) {
    f.forward(end - begin, cols, x + begin * cols, shift.data(), scale.data(), bias.data(),
              y + begin * cols);
  });
}

template <class T>
void column_norm_backward(std::int64_t rows, std::int64_t cols, double eps, bool constant,
                          const T* x, const T* moments, const ColumnNorm<T>& by, const T* gy, T* gx,
                          const ColumnNormGradients<T>& to) {
  const BatchNormRows<T> f = rows_of(T());
  const ColumnBlocks cut(rows, cols);
  std::vector<T> shift(cols), scale(cols), along(cols), down(cols);
  for (std::int64_t c = 0; c < cols; ++c)
    shift[c] = static_cast<T>(NormColumn<T>(c, cols, eps, moments, by).shift());
  std::vector<double> plain(cols), with_x(cols);
  if (!constant || to.weight || to.bias) {
    std::vector<T> sums = cut.partial_sums<T>(), products = cut.partial_sums<T>();
    cut.run([&](std::int64_t block, std::int64_t first, std::int64_t count) {
      f.add_products(count, cols, x + first * cols, shift.data(), gy + first * cols,
                     sums.data() + block * cols, products.data() + block * cols);
    });
    plain = cut.total(sums);
    with_x = cut.total(products);
  }
  for (std::int64_t c = 0; c < cols; ++c) {
    const NormColumn<T> column(c, cols, eps, moments, by);
    const NormColumnGradient g(column, rows, constant, plain[c], with_x[c]);
    scale[c] = static_cast<T>(column.scale());
    along[c] = static_cast<T>(g.along);
    down[c] = static_cast<T>(g.down);
    if (to.mean_scale) to.mean_scale[c] = static_cast<T>(g.mean_scale);
    if (to.weight) to.weight[c] = static_cast<T>(g.weight);
    if (to.bias) to.bias[c] = static_cast<T>(g.bias);
  }
  if (!gx) return;
  cut.run([&](std::int64_t, std::int64_t first, std::int64_t count) {
    f.backward(count, cols, x + first * cols, shift.data(), gy + first * cols, scale.data(),
               along.data(), down.data(), gx + first * cols);
  });
}

template <class T>
void update_moments(std::int64_t cols, std::int64_t n, double momentum, const T* moments, T* mean,
                    T* variance) {
  for (std::int64_t c = 0; c < cols; ++c) {
    mean[c] = moved_mean(momentum, mean[c], moments[c]);
    variance[c] = moved_variance(momentum, n, variance[c], moments[cols + c]);
  }
}

#define INSTANTIATE(T)                                                                             \
  template void column_moments(std::int64_t, std::int64_t, const T*, T*);                          \
  template void column_norm(std::int64_t, std::int64_t, double, const T*, const T*,                \
                            const ColumnNorm<T>&, T*);                                             \
  template void column_norm_backward(std::int64_t, std::int64_t, double, bool, const T*, const T*, \
                                     const ColumnNorm<T>&, const T*, T*,                           \
                                     const ColumnNormGradients<T>&);                               \
  template void update_moments(std::int64_t, std::int64_t, double, const T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cpu
#endif
