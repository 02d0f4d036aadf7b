#include <lipgrad/ops/spectral_norm.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <utility>
#include <vector>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/check.h>
#include <lipgrad/core/op.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/shape.h>

namespace lipgrad {

namespace {

// The weight in f64 on the CPU.
Tensor checked(const char* op, const Tensor& w) {
  check_same_kind(op, {&w});
  LIPGRAD_CHECK(w.dtype() == f32 || w.dtype() == f64, "{}: expects f32 or f64, got {}", op,
                w.dtype());
  LIPGRAD_CHECK(w.rank() >= 2, "{}: a weight is (out, in, ...), got {}", op, w.shape());
  const Tensor matrix = w.detach().to(cpu_device).to(f64);
  const double* element = matrix.data<double>();
  for (std::int64_t i = 0; i < matrix.numel(); ++i)
    LIPGRAD_CHECK(std::isfinite(element[i]), "{}: element {} of a weight {} is {}", op, i,
                  w.shape(), element[i]);
  return matrix;
}

// |the Fourier transform of a kernel (h, w)|^2 at the frequencies (down, right), in radians.
double power(std::int64_t h, std::int64_t w, const double* kernel, double down, double right) {
  const std::complex<double> step = std::polar(1.0, right), row_step = std::polar(1.0, down);
  std::complex<double> sum = 0;
  for (std::int64_t i = h; i-- > 0;) {  // Horner's scheme, of rows and within them
    std::complex<double> row = 0;
    for (std::int64_t j = w; j-- > 0;) row = row * step + kernel[i * w + j];
    sum = sum * row_step + row;
  }
  return std::norm(sum);
}

// Its largest value over all frequencies: on a grid of at least eight points for each of a row's
// taps, over half of the frequencies (the others are conjugate), then by ever smaller steps from
// every local maximum that may belong to the largest one: on such a grid the square falls short of
// it by at most 1 - cos(pi / 8)^2 = 15 % along either side.
double largest_power(std::int64_t h, std::int64_t w, const double* kernel) {
  constexpr double pi = std::numbers::pi;
  const std::int64_t across = 8 * w, down = 4 * h;  // right in [0, 2 pi), down in [0, pi]
  const double step = 2 * pi / static_cast<double>(across),
               row_step = pi / static_cast<double>(down);
  std::vector<double> grid((down + 1) * across);
  for (std::int64_t i = 0; i <= down; ++i)
    for (std::int64_t j = 0; j < across; ++j)
      grid[i * across + j] =
          power(h, w, kernel, row_step * static_cast<double>(i), step * static_cast<double>(j));
  std::vector<std::pair<double, std::int64_t>> peaks;
  for (std::int64_t i = 0; i <= down; ++i)
    for (std::int64_t j = 0; j < across; ++j) {
      const double own = grid[i * across + j];
      bool largest = true;
      for (const std::int64_t k : {i - 1, i, i + 1})
        for (const std::int64_t l : {j - 1, j, j + 1})
          if (k >= 0 && k <= down) largest &= own >= grid[k * across + (l + across) % across];
      if (largest) peaks.emplace_back(own, i * across + j);
    }
  const double floor = 0.7 * *std::max_element(grid.begin(), grid.end());
  double best = 0;
  for (const auto& [value, at] : peaks) {
    if (value < floor) continue;
    double y = row_step * static_cast<double>(at / across),
           x = step * static_cast<double>(at % across), top = value;
    for (double size = 0.5; size > 1e-8; size /= 2) {
      bool moved = true;
      while (moved) {
        moved = false;
        const double y0 = y, x0 = x;
        for (const double dy : {-1.0, 0.0, 1.0})
          for (const double dx : {-1.0, 0.0, 1.0}) {
            const double near =
                power(h, w, kernel, y0 + dy * size * row_step, x0 + dx * size * step);
            if (near <= top * (1 + 1e-15)) continue;
            top = near;
            y = y0 + dy * size * row_step;
            x = x0 + dx * size * step;
            moved = true;
          }
      }
    }
    best = std::max(best, top);
  }
  return best;
}

struct SpectralNorm {
  static constexpr auto name = "spectral_norm_of";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& w = in[0];
    const Tensor matrix = checked(name, w);
    const std::int64_t rows = w.shape()[0], cols = w.shape().trailing(1);
    Tensor left = empty({rows, 1}, f64), right = empty({1, cols}, f64);
    const double value =
        largest_singular_value(rows, cols, matrix.data<double>(), left.mutable_data<double>(),
                               right.mutable_data<double>());
    ctx.save(left.to(w.dtype()).to(w.device()));
    ctx.save(right.to(w.dtype()).to(w.device()));
    ctx.save(w);  // for its shape
    return full({}, value, w.dtype()).to(w.device());
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    gx[0] = reshape(mul(mul(ctx.saved(0), ctx.saved(1)), gy), ctx.saved(2).shape());
  }
};

}  // namespace

double spectral_norm(const Tensor& w) {
  const Tensor matrix = checked("spectral_norm", w);
  return largest_singular_value(w.shape()[0], w.shape().trailing(1), matrix.data<double>());
}

double depthwise_spectral_norm(const Tensor& w) {
  constexpr auto op = "depthwise_spectral_norm";
  const Tensor kernels = checked(op, w);
  LIPGRAD_CHECK(w.rank() == 4 && w.shape()[1] == 1, "{}: expects (C, 1, kh, kw), got {}", op,
                w.shape());
  const std::int64_t h = w.shape()[2], wide = w.shape()[3], taps = h * wide;
  if (w.numel() == 0) return 0;
  std::vector<double> norms(w.shape()[0]);
  parallel_for(w.shape()[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c)
      norms[c] = std::sqrt(largest_power(h, wide, kernels.data<double>() + c * taps));
  });
  return *std::max_element(norms.begin(), norms.end());
}

Tensor spectral_norm_of(const Tensor& w) { return apply(SpectralNorm{}, w); }

}  // namespace lipgrad
