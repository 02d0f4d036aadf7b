#include <lipgrad/graph/kernels/pair_norm.h>

#include "column_pairs.cuh"
#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPacks = 2;  // of a row that a thread keeps

enum class Scalars { pn, pn_backward, si, si_backward, scs_backward, subtract };

// out = a u - b v - mean, or a (u - mean) - b v where `centre`, with a and b of each row.
template <class T>
struct RowMap {
  Scalars kind;
  std::int64_t rows, cols;
  double scale, eps;
  const T *u, *v;      // v: null where there is no b
  const double* sums;  // (cols) rows times the mean; null: zeros
  bool centre;
  const double* total;  // of pn_backward: <gy, y>
  T *root, *out;

  __device__ __forceinline__ T mean(std::int64_t c) const {
    return static_cast<T>(sums[c] * (1.0 / static_cast<double>(rows)));
  }
  // From <u, v>, or <u, u> without v.
  __device__ __forceinline__ void scalars(std::int64_t row, double dot, bool first, T& a,
                                          T& b) const {
    b = T(0);
    if (kind == Scalars::subtract) {
      a = T(1);
      return;
    }
    double length = 0, along = 0;
    if (kind == Scalars::si) {
      length = sqrt(eps + dot);
      if (first) root[row] = static_cast<T>(length);
    } else if (kind == Scalars::pn || kind == Scalars::pn_backward) {
      length = root[0];
      if (kind == Scalars::pn_backward)
        along = *total / (scale * static_cast<double>(rows) * length);
    } else {
      length = root[row];
      along = kind == Scalars::si_backward ? dot / (scale * length)
                                           : scale * (dot / (length * length)) / length;
    }
    a = static_cast<T>(scale / length);
    b = static_cast<T>(along);
  }
  __device__ __forceinline__ bool reduces() const {
    return kind == Scalars::si || kind == Scalars::si_backward || kind == Scalars::scs_backward;
  }
};

template <class T>
__device__ __forceinline__ void read_packs(const RowMap<T>& map, std::int64_t row, std::int64_t c,
                                           bool vector, Pack<T>& u, Pack<T>& v) {
  const std::int64_t left = map.cols - c;
  u = load(map.u + row * map.cols + c, vector, left, T(0));
  if (map.v != nullptr) v = load(map.v + row * map.cols + c, vector, left, T(0));
  if (map.centre)
#pragma unroll
    for (int i = 0; i < Pack<T>::size; ++i)
      if (i < left) u.v[i] -= map.mean(c + i);
}

template <class T>
__device__ __forceinline__ double dot_packs(const RowMap<T>& map, const Pack<T>& u,
                                            const Pack<T>& v) {
  T sum = 0;
#pragma unroll
  for (int i = 0; i < Pack<T>::size; ++i) sum += u.v[i] * (map.v != nullptr ? v.v[i] : u.v[i]);
  return static_cast<double>(sum);
}

template <class T>
__device__ __forceinline__ void write_packs(const RowMap<T>& map, std::int64_t row, std::int64_t c,
                                            bool vector, T a, T b, const Pack<T>& u,
                                            const Pack<T>& v) {
  const std::int64_t left = map.cols - c;
  Pack<T> y;
#pragma unroll
  for (int i = 0; i < Pack<T>::size; ++i) {
    y.v[i] = a * u.v[i];
    if (map.v != nullptr) y.v[i] -= b * v.v[i];
    if (map.sums != nullptr && !map.centre && i < left) y.v[i] -= map.mean(c + i);
  }
  store(map.out + row * map.cols + c, vector, left, y);
}

// A row is the work of `team` threads, a warp or the block, which keep what fits in registers.
template <class T, int team>
__global__ void __launch_bounds__(kThreads) row_map_kernel(RowMap<T> map, bool vector) {
  constexpr int size = Pack<T>::size;
  const int lane = static_cast<int>(threadIdx.x) % team;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / team) +
                           static_cast<int>(threadIdx.x) / team,
                     step = team * size, cols = map.cols;
  if (row >= map.rows) return;  // whole teams
  Pack<T> u[kPacks]{}, v[kPacks]{}, more_u{}, more_v{};
  double dot = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::int64_t c = lane * size + k * step;
    if (c >= cols) continue;
    read_packs(map, row, c, vector, u[k], v[k]);
    dot += dot_packs(map, u[k], v[k]);
  }
  if (map.reduces()) {
    for (std::int64_t c = lane * size + kPacks * step; c < cols; c += step) {
      read_packs(map, row, c, vector, more_u, more_v);
      dot += dot_packs(map, more_u, more_v);
    }
    dot = team == kWarp ? warp_reduce(dot, Sum()) : block_reduce<kThreads>(dot, Sum(), 0.0);
  }
  T a, b;
  map.scalars(row, dot, lane == 0, a, b);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const std::int64_t c = lane * size + k * step;
    if (c < cols) write_packs(map, row, c, vector, a, b, u[k], v[k]);
  }
  for (std::int64_t c = lane * size + kPacks * step; c < cols; c += step) {
    read_packs(map, row, c, vector, more_u, more_v);
    write_packs(map, row, c, vector, a, b, more_u, more_v);
  }
}

template <class T>
void map_rows(const RowMap<T>& map) {
  if (map.rows == 0) return;
  const bool vector = map.cols % Pack<T>::size == 0 && aligned(map.u, map.v, map.out);
  if (map.cols <= kWarp * kPacks * Pack<T>::size) {
    launch(row_map_kernel<T, kWarp>, blocks_for(map.rows, kThreads / kWarp), kThreads, 0, map,
           vector);
  } else {
    launch(row_map_kernel<T, kThreads>, blocks_for(map.rows, 1), kThreads, 0, map, vector);
  }
}

template <class T>
struct Element {
  const T* x;
  std::int64_t cols;
  __device__ T operator()(std::int64_t row, std::int64_t col) const { return x[row * cols + col]; }
};

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
// sums(2, cols) about the first row -> the sums of x itself in the first row of sums, and root.
template <class T>
__global__ void __launch_bounds__(256)
    pair_norm_root_kernel(std::int64_t rows, std::int64_t cols, double eps, const T* x,
                          double* sums, T* root) {
  const double n = static_cast<double>(rows);
  double squares = 0;
  for (std::int64_t c = threadIdx.x; c < cols; c += 256) {
    const double sum = sums[c];
    squares += sums[cols + c] - sum * sum / n;
    sums[c] = sum + (rows > 0 ? n * static_cast<double>(x[c]) : 0.0);
  }
  squares = block_reduce<256>(squares, Sum(), 0.0);
  if (threadIdx.x == 0) *root = static_cast<T>(sqrt(eps + (squares < 0 ? 0.0 : squares) / n));
}

template <class T>
struct WithProduct {
  const T *gy, *y;
  std::int64_t cols;
  __device__ void operator()(std::int64_t row, std::int64_t col, double& g, double& product) const {
    g = static_cast<double>(gy[row * cols + col]);
    product = g * static_cast<double>(y[row * cols + col]);
  }
};
// sums[0] = the sum of all.
__global__ void __launch_bounds__(256) total_kernel(std::int64_t n, double* sums) {
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < n; c += 256) sum += sums[c];
  sum = block_reduce<256>(sum, Sum(), 0.0);
  if (threadIdx.x == 0) sums[0] = sum;
}

}  // namespace

template <class T>
void pair_norm(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x, T* y,
               T* root) {
  const Scratch<double> sums(2 * cols);
  column_pairs(rows, cols, AboutFirst<T>{x, cols}, sums.get());
  launch(pair_norm_root_kernel<T>, 1, 256, 0, rows, cols, eps, x, sums.get(), root);
  map_rows(RowMap<T>{Scalars::pn, rows, cols, scale, eps, x, nullptr, sums.get(), true, nullptr,
                     root, y});
}

template <class T>
void pair_norm_backward(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                        const T* root, const T* gy, T* gx) {
  if (rows == 0 || cols == 0) return;
  const Scratch<double> sums(2 * cols);
  column_pairs(rows, cols, WithProduct<T>{gy, y, cols}, sums.get());
  launch(total_kernel, 1, 256, 0, cols, sums.get() + cols);
  // The mean of y is zero, so that of v is scale mean(gy) / root.
  map_rows(RowMap<T>{Scalars::pn_backward, rows, cols, scale, 0, gy, y, sums.get(), true,
                     sums.get() + cols, const_cast<T*>(root), gx});
}

template <class T>
void pair_norm_si(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x, T* y,
                  T* root) {
  const Scratch<double> sums(cols);
  column_sums_of(rows, cols, Element<T>{x, cols}, sums.get());
  map_rows(RowMap<T>{Scalars::si, rows, cols, scale, eps, x, nullptr, sums.get(), true, nullptr,
                     root, y});
}

template <class T>
void pair_norm_si_backward(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                           const T* root, const T* gy, T* gx) {
  const Scratch<double> sums(cols);
  T* roots = const_cast<T*>(root);
  map_rows(RowMap<T>{Scalars::si_backward, rows, cols, scale, 0, gy, y, nullptr, false, nullptr,
                     roots, gx});
  column_sums_of(rows, cols, Element<T>{gx, cols}, sums.get());
  map_rows(RowMap<T>{Scalars::subtract, rows, cols, scale, 0, gx, nullptr, sums.get(), false,
                     nullptr, roots, gx});
}

template <class T>
void pair_norm_scs(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x, T* y,
                   T* root) {
  const Scratch<double> sums(cols);
  column_sums_of(rows, cols, Element<T>{x, cols}, sums.get());
  map_rows(RowMap<T>{Scalars::si, rows, cols, scale, eps, x, nullptr, sums.get(), false, nullptr,
                     root, y});
}

template <class T>
void pair_norm_scs_backward(std::int64_t rows, std::int64_t cols, double scale, const T* x,
                            const T* root, const T* gy, T* gx) {
  const Scratch<double> sums(cols);
  column_sums_of(rows, cols, Element<T>{gy, cols}, sums.get());
  map_rows(RowMap<T>{Scalars::scs_backward, rows, cols, scale, 0, gy, x, sums.get(), false, nullptr,
                     const_cast<T*>(root), gx});
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

}  // namespace lipgrad::cuda
