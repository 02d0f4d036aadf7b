#pragma once

// Private to the CPU kernels: the functions of one type and target that pair_norm is made of, as a
// table. All take whole rows; `sums` are added to.

#include <cstdint>

namespace lipgrad::cpu {

template <class T>
struct PairNormRows {
  // sums += the column sums of x.
  void (*add)(std::int64_t rows, std::int64_t cols, const T* x, T* sums);
  // The same, and root = sqrt(eps + |x|^2) of each row.
  void (*add_with_roots)(std::int64_t rows, std::int64_t cols, double eps, const T* x, T* sums,
                         T* root);
  // The same as add, and <x, with>.
  double (*add_with_dot)(std::int64_t rows, std::int64_t cols, const T* x, const T* with, T* sums);
  // The sum of |x - mean|^2.
  double (*deviations)(std::int64_t rows, std::int64_t cols, const T* x, const T* mean);

  // y = factor (x - mean).
  void (*centre)(std::int64_t rows, std::int64_t cols, T factor, const T* x, const T* mean, T* y);
  // root = sqrt(eps + |x - mean|^2), y = scale (x - mean) / root.
  void (*individually)(std::int64_t rows, std::int64_t cols, double scale, double eps, const T* x,
                       const T* mean, T* y, T* root);
  // y = scale x / root - mean.
  void (*simultaneously)(std::int64_t rows, std::int64_t cols, double scale, const T* x,
                         const T* root, const T* mean, T* y);

  // gx = factor (gy - mean) - along y.
  void (*backward)(std::int64_t rows, std::int64_t cols, T factor, T along, const T* y, const T* gy,
                   const T* mean, T* gx);
  // gx = scale gy / root - y <gy, y> / (scale root); sums += gx.
  void (*backward_individually)(std::int64_t rows, std::int64_t cols, double scale, const T* y,
                                const T* root, const T* gy, T* gx, T* sums);
  // gx -= shift.
  void (*subtract)(std::int64_t rows, std::int64_t cols, const T* shift, T* gx);
  // gx = scale (gy / root - x <gy, x> / root^3) - shift.
  void (*backward_simultaneously)(std::int64_t rows, std::int64_t cols, double scale, const T* x,
                                  const T* root, const T* gy, const T* shift, T* gx);
};

}  // namespace lipgrad::cpu
