#include <lipgrad/ops/spectral_norm.h>

#include <cmath>

#include <lipgrad/core/blas.h>
#include <lipgrad/core/check.h>

namespace lipgrad {

double spectral_norm(const Tensor& w) {
  check_same_kind("spectral_norm", {&w});
  LIPGRAD_CHECK(w.dtype() == f32 || w.dtype() == f64, "spectral_norm: expects f32 or f64, got {}",
                w.dtype());
  LIPGRAD_CHECK(w.rank() >= 2, "spectral_norm: a weight is (out, in, ...), got {}", w.shape());
  const Tensor matrix = w.detach().to(cpu_device).to(f64);
  const double* element = matrix.data<double>();
  for (std::int64_t i = 0; i < matrix.numel(); ++i)
    LIPGRAD_CHECK(std::isfinite(element[i]), "spectral_norm: element {} of a weight {} is {}", i,
                  w.shape(), element[i]);
  return largest_singular_value(w.shape()[0], w.shape().trailing(1), element);
}

}  // namespace lipgrad
