#include <lipgrad/ops/kernels/batch_norm.h>
#include <lipgrad/ops/kernels/batch_norm_columns.h>

#include "column_pairs.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

// Sums about the first row cancel little: it is one of the rows, so that what it is away from the
// mean is part of the squares.
template <class T>
struct AboutFirst {
  const T* x;
  std::int64_t cols;
  __device__ void operator()(std::int64_t row, std::int64_t col, double& d, double& square) const {
    d = static_cast<double>(x[row * cols + col]) - static_cast<double>(x[col]);
    square = d * d;
  }
};

template <class T>
__global__ void moments_kernel(std::int64_t rows, std::int64_t cols, const T* x, const double* sums,
                               T* moments) {
  const std::int64_t c = thread_index();
  if (c >= cols) return;
  const double n = static_cast<double>(rows), d = sums[c] / n, square = sums[cols + c] / n - d * d;
  moments[c] = static_cast<T>(static_cast<double>(x[c]) + d);
  moments[cols + c] = static_cast<T>(square < 0 ? 0.0 : square);
}

// columns(3, cols): shift, scale, bias.
template <class T>
__global__ void forward_columns_kernel(std::int64_t cols, double eps, const T* moments,
                                       ColumnNorm<T> by, T* columns) {
  const std::int64_t c = thread_index();
  if (c >= cols) return;
  const NormColumn<T> column(c, cols, eps, moments, by);
  columns[c] = static_cast<T>(column.shift());
  columns[cols + c] = static_cast<T>(column.scale());
  columns[2 * cols + c] = static_cast<T>(column.bias);
}

template <class T>
__global__ void __launch_bounds__(kMapThreads)
    column_norm_kernel(std::int64_t n, std::int64_t cols, bool vector, const T* x, const T* columns,
                       T* y) {
  const Piece<T> piece(n, vector);
  Pack<T> v = piece.read(x);
  const Columns<T> column(piece, cols);
#pragma unroll
  for (int k = 0; k < piece.size; ++k) {
    const std::int64_t c = column(piece.offset(k));
    v.v[k] = (v.v[k] - columns[c]) * columns[cols + c] + columns[2 * cols + c];
  }
  piece.write(y, v);
}

// gy, and gy (x - shift); shift is computed from the moments, a T as it is elsewhere.
template <class T>
struct Products {
  const T *x, *gy, *moments, *mean_scale;
  std::int64_t cols;
  __device__ void operator()(std::int64_t row, std::int64_t col, double& g, double& product) const {
    const double a = mean_scale ? static_cast<double>(mean_scale[col]) : 1.0;
    const T shift = static_cast<T>(a * static_cast<double>(moments[col]));
    g = static_cast<double>(gy[row * cols + col]);
    product = g * static_cast<double>(x[row * cols + col] - shift);
  }
};

// columns(4, cols): shift, scale, along, down; and the gradients of the parameters. sums(2, cols)
// is null where nothing needs them.
template <class T>
__global__ void backward_columns_kernel(std::int64_t rows, std::int64_t cols, double eps,
                                        bool constant, const T* moments, ColumnNorm<T> by,
                                        const double* sums, T* columns, ColumnNormGradients<T> to) {
  const std::int64_t c = thread_index();
  if (c >= cols) return;
  const NormColumn<T> column(c, cols, eps, moments, by);
  const NormColumnGradient g(column, rows, constant, sums ? sums[c] : 0.0,
                             sums ? sums[cols + c] : 0.0);
  columns[c] = static_cast<T>(column.shift());
  columns[cols + c] = static_cast<T>(column.scale());
  columns[2 * cols + c] = static_cast<T>(g.along);
  columns[3 * cols + c] = static_cast<T>(g.down);
  if (to.mean_scale) to.mean_scale[c] = static_cast<T>(g.mean_scale);
  if (to.weight) to.weight[c] = static_cast<T>(g.weight);
  if (to.bias) to.bias[c] = static_cast<T>(g.bias);
}

template <class T>
__global__ void __launch_bounds__(kMapThreads)
    column_norm_backward_kernel(std::int64_t n, std::int64_t cols, bool vector, const T* x,
                                const T* gy, const T* columns, T* gx) {
  const Piece<T> piece(n, vector);
  const Pack<T> v = piece.read(x);
  Pack<T> g = piece.read(gy);
  const Columns<T> column(piece, cols);
#pragma unroll
  for (int k = 0; k < piece.size; ++k) {
    const std::int64_t c = column(piece.offset(k));
    g.v[k] = columns[cols + c] *
             (g.v[k] - (v.v[k] - columns[c]) * columns[2 * cols + c] - columns[3 * cols + c]);
  }
  piece.write(gx, g);
}

template <class T>
__global__ void update_moments_kernel(std::int64_t cols, std::int64_t n, double momentum,
                                      const T* moments, T* mean, T* variance) {
  const std::int64_t c = thread_index();
  if (c >= cols) return;
  mean[c] = moved_mean(momentum, mean[c], moments[c]);
  variance[c] = moved_variance(momentum, n, variance[c], moments[cols + c]);
}

}  // namespace

template <class T>
void column_moments(std::int64_t rows, std::int64_t cols, const T* x, T* moments) {
  if (cols == 0) return;
  const Scratch<double> sums(2 * cols);
  column_pairs(rows, cols, AboutFirst<T>{x, cols}, sums.get());
  launch(moments_kernel<T>, blocks_for(cols, kMapThreads), kMapThreads, 0, rows, cols, x,
         static_cast<const double*>(sums.get()), moments);
}

template <class T>
void column_norm(std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* moments,
                 const ColumnNorm<T>& by, T* y) {
  if (rows == 0 || cols == 0) return;
  const Scratch<T> columns(3 * cols);
  launch(forward_columns_kernel<T>, blocks_for(cols, kMapThreads), kMapThreads, 0, cols, eps,
         moments, by, columns.get());
  launch(column_norm_kernel<T>, blocks_for(rows * cols, Piece<T>::block), kMapThreads, 0,
         rows * cols, cols, aligned(x, y), x, static_cast<const T*>(columns.get()), y);
}

template <class T>
void column_norm_backward(std::int64_t rows, std::int64_t cols, double eps, bool constant,
                          const T* x, const T* moments, const ColumnNorm<T>& by, const T* gy, T* gx,
                          const ColumnNormGradients<T>& to) {
  if (cols == 0) return;
  const bool summed = !constant || to.weight || to.bias;
  const Scratch<double> sums(summed ? 2 * cols : 0);
  if (summed)
    column_pairs(rows, cols, Products<T>{x, gy, moments, by.mean_scale, cols}, sums.get());
  const Scratch<T> columns(4 * cols);
  launch(backward_columns_kernel<T>, blocks_for(cols, kMapThreads), kMapThreads, 0, rows, cols, eps,
         constant, moments, by, summed ? static_cast<const double*>(sums.get()) : nullptr,
         columns.get(), to);
  if (gx)
    launch(column_norm_backward_kernel<T>, blocks_for(rows * cols, Piece<T>::block), kMapThreads, 0,
           rows * cols, cols, aligned(x, gy, gx), x, gy, static_cast<const T*>(columns.get()), gx);
}

template <class T>
void update_moments(std::int64_t cols, std::int64_t n, double momentum, const T* moments, T* mean,
                    T* variance) {
  launch(update_moments_kernel<T>, blocks_for(cols, kMapThreads), kMapThreads, 0, cols, n, momentum,
         moments, mean, variance);
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

}  // namespace lipgrad::cuda
