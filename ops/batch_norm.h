#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lipgrad/core/module.h>
#include <lipgrad/core/random.h>
#include <lipgrad/core/tensor.h>

// Normalisation of the columns of x(N, C), each by statistics over rows; f32 or f64. Vectors have
// shape (C); an undefined weight counts as 1, an undefined bias as 0.
namespace lipgrad {

// Means (first row) and variances (mean squared deviations, second row) of the columns of x (N, C),
// as (2, C). No gradient is recorded. Error for no rows.
Tensor column_moments(const Tensor& x);

// (x - mean) / sqrt(variance + eps) * weight + bias with the moments of x itself (Ioffe, Szegedy,
// ICML 2015, in training). If `moments` is given, it receives column_moments(x). No rows give no
// rows (and no moments).
Tensor batch_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Tensor* moments = nullptr);
// The same with given moments, which count as constants: a map that is linear but for its bias,
// with the l2 Lipschitz constant max |weight| / sqrt(variance + eps).
Tensor fixed_batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance,
                        const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

// (x - a mean) / sqrt(mean((x - a mean)^2) + eps) * weight + bias: GraphNorm (Cai, Luo, Xu, He,
// Liu, Wang, "GraphNorm", ICML 2021, equation 3), with a = mean_scale, learned; undefined: 1.
// offsets (G + 1, i64, on the CPU, from 0 to N, not descending): rows offsets[g] to before
// offsets[g + 1] are normalised by themselves, as those of one graph; undefined: all rows together.
Tensor graph_norm(const Tensor& x, const Tensor& mean_scale = {}, const Tensor& weight = {},
                  const Tensor& bias = {}, const Tensor& offsets = {}, double eps = 1e-5);

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // what a batch weighs in the running moments
  bool affine = true;     // learn a scale and a shift of each feature, from 1 and 0
  DType dtype = f32;
};

// batch_norm() in training, which also moves the running moments; fixed_batch_norm() by these in
// evaluation. As BatchNorm1d in PyTorch: parameters weight and bias (features) unless
// options.affine is false, buffers running_mean, from 0, and running_var, from 1, which takes
// variances times N / (N - 1). The buffers are saved with the model and stay as they are while
// checkpoint() replays. Forward passes in training must not run at the same time. In training no
// Lipschitz constant holds: the moments of few or equal rows are as small as can be. Error unless
// features >= 1, eps >= 0 and momentum is in [0, 1], and in training for fewer than two rows.
class BatchNorm : public Module {
 public:
  BatchNorm(Module& parent, std::string name, std::int64_t features,
            const BatchNormOptions& options = {});

  Tensor forward(const Tensor& x, Mode mode) const;

  std::optional<Parameter> weight, bias;
  mutable Buffer running_mean, running_var;

 private:
  std::int64_t features_;
  double eps_, momentum_;
};

}  // namespace lipgrad
