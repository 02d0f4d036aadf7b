#include <lipgrad/ops/kernels/functors.h>
#include <lipgrad/ops/kernels/gru_cell.h>

#include "vectors.cuh"

namespace lipgrad::cuda {
namespace {

// r, z and n of one element; rest: 1 - r, 1 - z.
template <class T>
struct Gates {
  T r, r_rest, z, z_rest, n;
  __device__ Gates(T x_r, T x_z, T x_n, T hidden_r, T hidden_z, T hidden_n) {
    scalar::logistic(x_r + hidden_r, r, r_rest);
    scalar::logistic(x_z + hidden_z, z, z_rest);
    n = scalar::tanh(x_n + r * hidden_n);
  }
};

// A thread handles kSize neighbouring elements of a row, `packs` threads a row.
template <class T, int kSize>
struct alignas(kSize * sizeof(T)) Part {
  T v[kSize];
};
template <class T, int kSize>
__device__ __forceinline__ Part<T, kSize> read(const T* p) {
  return *reinterpret_cast<const Part<T, kSize>*>(p);
}
template <class T, int kSize>
__device__ __forceinline__ void write(T* p, const Part<T, kSize>& part) {
  *reinterpret_cast<Part<T, kSize>*>(p) = part;
}

template <class T, int kSize>
__global__ void __launch_bounds__(kMapThreads)
    gru_gates_kernel(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h,
                     T* y) {
  const std::int64_t packs = cols / kSize, i = thread_index();
  if (i >= rows * packs) return;
  const std::int64_t row = i / packs, at = row * cols + i % packs * kSize,
                     wide = at + 2 * row * cols;
  using P = Part<T, kSize>;
  const P xr = read<T, kSize>(x + wide), xz = read<T, kSize>(x + wide + cols),
          xn = read<T, kSize>(x + wide + 2 * cols), hr = read<T, kSize>(hidden + wide),
          hz = read<T, kSize>(hidden + wide + cols), hn = read<T, kSize>(hidden + wide + 2 * cols),
          state = read<T, kSize>(h + at);
  P out;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const Gates<T> f(xr.v[k], xz.v[k], xn.v[k], hr.v[k], hz.v[k], hn.v[k]);
    out.v[k] = f.z * state.v[k] + f.z_rest * f.n;
  }
  write<T, kSize>(y + at, out);
}

template <class T, int kSize>
__global__ void __launch_bounds__(kMapThreads)
    gru_gates_backward_kernel(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden,
                              const T* h, const T* gy, T* gx, T* ghidden, T* gh) {
  const std::int64_t packs = cols / kSize, i = thread_index();
  if (i >= rows * packs) return;
  const std::int64_t row = i / packs, at = row * cols + i % packs * kSize,
                     wide = at + 2 * row * cols;
  using P = Part<T, kSize>;
  const P xr = read<T, kSize>(x + wide), xz = read<T, kSize>(x + wide + cols),
          xn = read<T, kSize>(x + wide + 2 * cols), hr = read<T, kSize>(hidden + wide),
          hz = read<T, kSize>(hidden + wide + cols), hn = read<T, kSize>(hidden + wide + 2 * cols),
          state = read<T, kSize>(h + at), g = read<T, kSize>(gy + at);
  P to_r, to_z, to_n, to_hidden, to_h;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const Gates<T> f(xr.v[k], xz.v[k], xn.v[k], hr.v[k], hz.v[k], hn.v[k]);
    to_z.v[k] = g.v[k] * (state.v[k] - f.n) * f.z * f.z_rest;
    to_n.v[k] = g.v[k] * f.z_rest * (T(1) - f.n * f.n);
    to_r.v[k] = to_n.v[k] * hn.v[k] * f.r * f.r_rest;
    to_hidden.v[k] = to_n.v[k] * f.r;
    to_h.v[k] = g.v[k] * f.z;
  }
  if (gx) {
    write<T, kSize>(gx + wide, to_r);
    write<T, kSize>(gx + wide + cols, to_z);
    write<T, kSize>(gx + wide + 2 * cols, to_n);
  }
  if (ghidden) {
    write<T, kSize>(ghidden + wide, to_r);
    write<T, kSize>(ghidden + wide + cols, to_z);
    write<T, kSize>(ghidden + wide + 2 * cols, to_hidden);
  }
  if (gh) write<T, kSize>(gh + at, to_h);
}

// Two elements a thread where the rows allow it: 8 or 16 bytes an access, and few registers.
constexpr int kWide = 2;

template <class T, class... P>
bool wide(std::int64_t cols, const P*... p) {
  return cols % kWide == 0 && aligned(p...);
}

}  // namespace

template <class T>
void gru_gates(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden, const T* h,
               T* y) {
  if (wide<T>(cols, x, hidden, h, y)) {
    launch(gru_gates_kernel<T, kWide>, blocks_for(rows * cols / kWide, kMapThreads), kMapThreads, 0,
           rows, cols, x, hidden, h, y);
  } else {
    launch(gru_gates_kernel<T, 1>, blocks_for(rows * cols, kMapThreads), kMapThreads, 0, rows, cols,
           x, hidden, h, y);
  }
}

template <class T>
void gru_gates_backward(std::int64_t rows, std::int64_t cols, const T* x, const T* hidden,
                        const T* h, const T* gy, T* gx, T* ghidden, T* gh) {
  if (wide<T>(cols, x, hidden, h, gy, gx, ghidden, gh)) {
    launch(gru_gates_backward_kernel<T, kWide>, blocks_for(rows * cols / kWide, kMapThreads),
           kMapThreads, 0, rows, cols, x, hidden, h, gy, gx, ghidden, gh);
  } else {
    launch(gru_gates_backward_kernel<T, 1>, blocks_for(rows * cols, kMapThreads), kMapThreads, 0,
           rows, cols, x, hidden, h, gy, gx, ghidden, gh);
  }
}

#define INSTANTIATE(T)                                                                       \
  template void gru_gates(std::int64_t, std::int64_t, const T*, const T*, const T*, T*);     \
  template void gru_gates_backward(std::int64_t, std::int64_t, const T*, const T*, const T*, \
                                   const T*, T*, T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lipgrad::cuda
