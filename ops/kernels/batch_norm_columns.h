#pragma once

// C++17, for host and device compilers alike. What one column's numbers come to, in double.

#include <cmath>
#include <cstdint>

#include <lipgrad/core/philox.h>  // LIPGRAD_HD
#include <lipgrad/ops/kernels/batch_norm.h>

namespace lipgrad {

// y = (x - shift) scale + bias.
template <class T>
struct NormColumn {
  double mean, mean_scale, weight, bias, rstd;

  LIPGRAD_HD NormColumn(std::int64_t c, std::int64_t cols, double eps, const T* moments,
                        const ColumnNorm<T>& by)
      : mean(static_cast<double>(moments[c])),
        mean_scale(by.mean_scale ? static_cast<double>(by.mean_scale[c]) : 1.0),
        weight(by.weight ? static_cast<double>(by.weight[c]) : 1.0),
        bias(by.bias ? static_cast<double>(by.bias[c]) : 0.0) {
    const double left = (1 - mean_scale) * mean;
    rstd = 1 / ::sqrt(static_cast<double>(moments[cols + c]) + left * left + eps);
  }
  LIPGRAD_HD double shift() const { return mean_scale * mean; }
  LIPGRAD_HD double scale() const { return weight * rstd; }
};

// From the sums of gy and of gy (x - shift) over n rows: gx = scale (gy - (x - shift) along -
// down), and the gradients of the parameters.
struct NormColumnGradient {
  double along = 0, down = 0, mean_scale = 0, weight, bias;

  template <class T>
  LIPGRAD_HD NormColumnGradient(const NormColumn<T>& c, std::int64_t rows, bool constant,
                                double plain, double with_x)
      : weight(with_x * c.rstd), bias(plain) {
    if (constant) return;
    // xhat = (x - shift) rstd has the mean (1 - a) mean rstd: 0 where a is 1.
    const double n = static_cast<double>(rows), product = with_x * c.rstd / n,
                 left = plain / n - (1 - c.mean_scale) * c.mean * c.rstd * product;
    along = product * c.rstd;
    down = c.mean_scale * left;
    mean_scale = -c.mean * c.scale() * n * left;
  }
};

// What update_moments() makes of one column.
template <class T>
LIPGRAD_HD T moved_mean(double momentum, T running, T mean) {
  return static_cast<T>((1 - momentum) * static_cast<double>(running) +
                        momentum * static_cast<double>(mean));
}
template <class T>
LIPGRAD_HD T moved_variance(double momentum, std::int64_t n, T running, T variance) {
  const double count = static_cast<double>(n);
  return static_cast<T>((1 - momentum) * static_cast<double>(running) +
                        momentum * (count / (count - 1)) * static_cast<double>(variance));
}

}  // namespace lipgrad
